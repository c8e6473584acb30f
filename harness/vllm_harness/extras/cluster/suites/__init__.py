"""Runs the suites on several machines: each target is a shard, and each of its suites a cell."""
