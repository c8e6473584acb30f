"""Behaviours written once; tests/harmony and tests/standard each take them in for their model entries."""
