"""Reproduces defects on a real vLLM.

reproducer (chooses the kind of reproduction, and groups defects that share a server), steps and parser_cases
(two kinds; the third one, costs, is an extra), verdict (the results), report and script (files to report it).
"""
