"""Runs cells and suites on the nodes of a Ray cluster, and sends the nodes what they need."""
