"""Readers of recordings of other tools: VCR cassettes, HAR files, agentic-api."""
