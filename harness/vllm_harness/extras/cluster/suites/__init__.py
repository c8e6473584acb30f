"""The suites on many machines: a target is a shard, a suite of it a cell, and each cell a run of pytest."""
