"""Text from outside (captures, logs, model output) on a terminal: shown, never obeyed."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control characters, which a terminal would obey, written out; line ends stay."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
