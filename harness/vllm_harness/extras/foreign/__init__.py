"""Readers of recordings that others have written: VCR cassettes, HAR files, agentic-api."""
