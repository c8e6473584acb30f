"""Behaviours written once, for every model entry and lane whose capabilities allow."""
