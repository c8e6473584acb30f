"""Compares vLLM's Python and Rust front ends on the same cases."""
