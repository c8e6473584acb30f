"""Keeps the registry of defects: drafts, tables of versions, bisection, and reports to file upstream."""
