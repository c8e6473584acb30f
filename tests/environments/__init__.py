"""Tests of real server environments and of code in their interpreters; tests that start vLLM are slow."""
