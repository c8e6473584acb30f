"""The registry of defects: one file for each root cause in vLLM, which everything else names by its id.

entry (what a file holds), registry (all of them, found by id and by what they explain), entries (the files).
"""
