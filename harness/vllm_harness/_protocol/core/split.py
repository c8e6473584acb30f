"""How a rendered stream cuts a text into deltas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Split = Callable[[str], Sequence[str]]


def halves(text: str) -> list[str]:
    """A text in two pieces, or one, or none."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]
