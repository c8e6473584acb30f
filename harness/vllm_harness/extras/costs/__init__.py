"""Measures the cost of parsing answers of growing length; finds parsers whose cost grows superlinearly."""
