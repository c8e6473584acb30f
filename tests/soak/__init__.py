"""Long random trials of the harness, whose results add up in a log (`scripts/soak`)."""
