"""The harness on a Ray cluster of three nodes, all on this machine.

These tests need Ray, which the checkout's environment lacks; `scripts/cluster` makes one that has it.
"""
