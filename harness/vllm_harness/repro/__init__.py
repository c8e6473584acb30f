"""Reproduction: a defect's requests to a real server, and what their answers say.

answer (an answer as one JSON document), run (the steps of an entry, and the verdict).
"""
