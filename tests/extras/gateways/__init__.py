"""Tests with gateways in front of a scripted server: a broken one, and unmodified products."""
