"""Reproduces defects on a real vLLM.

reproducer (chooses the kind of reproduction, and groups defects that share a server), steps and parser_cases
(two kinds; the extra `costs` adds a third), verdict (the results), run (the results of many).
The extra `triage` makes the files for a report.
"""
