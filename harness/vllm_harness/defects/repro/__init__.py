"""Reproduction: a defect's requests to a real server, and what their answers say.

answer (an answer as one JSON document), run (what an entry needs, and the verdict), alone (its files).
"""
