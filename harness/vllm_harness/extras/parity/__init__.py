"""The same cases to both front ends of a vLLM, Python and Rust, and which of them is right."""
