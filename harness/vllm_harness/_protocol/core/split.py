"""How a rendered stream splits a text into deltas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Split = Callable[[str], Sequence[str]]


def halves(text: str) -> list[str]:
    """The two halves of a text, without empty ones."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]
