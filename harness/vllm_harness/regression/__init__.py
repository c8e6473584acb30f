"""The parser matrix: every parser's family, over versions of vLLM, case by case."""
