"""Compares the front ends of vLLM in Python and Rust on the same cases."""
