"""Tests of real environments and of code that runs in their interpreters; those that start vLLM are slow."""
