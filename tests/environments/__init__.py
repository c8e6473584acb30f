"""Real environments, and what runs in their interpreters; those that start vLLM are slow."""
