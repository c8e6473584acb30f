"""Runs the suites on several machines: a target is a shard, and each suite a cell, a run of pytest."""
