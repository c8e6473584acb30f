"""Readers for the recordings of other tools: VCR cassettes, HAR files, and agentic-api's recordings."""
