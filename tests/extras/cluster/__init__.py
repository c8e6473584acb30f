"""The harness on a Ray cluster of three nodes, all of them on this machine.

These tests need Ray, which the checkout's own environment does not have; `scripts/cluster` makes one with it.
"""
