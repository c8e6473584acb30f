"""The cost of parsing answers of growing length: finds parsers whose cost grows faster than linearly."""
