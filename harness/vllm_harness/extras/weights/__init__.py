"""Compares vLLM with transformers on the same weights, to find wrong kernels and damaged weights."""
