"""Gateways before a scripted server: a broken one, and unmodified products."""
