"""Tests of behaviours, each written once for all model entries and lanes with the needed capabilities."""
