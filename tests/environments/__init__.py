"""Tests of real environments, and of code in their interpreters; those that start vLLM are slow."""
