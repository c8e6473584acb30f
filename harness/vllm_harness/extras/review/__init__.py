"""Finds the effect of a change to vLLM: the code before it, and the families, APIs and tests it affects."""
