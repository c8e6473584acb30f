"""Reproduction: a defect shown again on a real vLLM, and what the answers say.

reproducer (an entry's kind, and the jobs of those that share a server), steps and parser_cases (two kinds;
the third, what an answer costs, is that of an extra), verdict (what came), report and script (to file it).
"""
