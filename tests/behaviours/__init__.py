"""Tests of behaviours, written once for every model entry and lane with the needed capabilities."""
