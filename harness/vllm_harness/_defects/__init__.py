"""The registry of known defects: one file for each root cause in vLLM.

entry (the format of a file), registry (finds entries by id and by model), entries (the files).
"""
