"""Cells on the nodes of a Ray cluster: nodes, what is sent to them, and the suites there."""
