"""Gateways before a scripted server: one that is broken on purpose, and unmodified products."""
