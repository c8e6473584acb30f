"""Whether a server computes what its weights say: vLLM against transformers, before a parser is blamed."""
