"""What of a case goes into the page: its texts are bounded, one by one and together; what is cut says so."""

from __future__ import annotations

from typing import Any

TEXT = 100_000  # characters of one text
CASE = 2_000_000  # characters of a case's texts
SHORT = 300  # characters of a text once a case's are used up
MEMBERS = 20_000  # of a list or a mapping
DEPTH = 60


class Allowance:
    """The characters that are left to a case.

    Args:
        characters: at the begin.
    """

    def __init__(self, characters: int = CASE) -> None:
        self._left = characters

    def text(self, text: str) -> str:
        """The text, or its begin and how long it was."""
        limit = min(TEXT, max(self._left, SHORT))
        self._left -= min(len(text), limit)
        if len(text) <= limit:
            return text
        return f"{text[:limit]}… [cut here: {len(text):,} characters in all]"

    def value(self, value: Any, depth: int = 0) -> Any:
        """A JSON value, its texts cut, its depth and its members bounded."""
        if isinstance(value, str):
            return self.text(value)
        if not isinstance(value, dict | list | tuple):
            return value
        if depth == DEPTH:
            return f"… [cut here: nests more than {DEPTH} deep]"
        self._left -= 2 * len(value)
        if isinstance(value, dict):
            kept = list(value.items())[:MEMBERS]
            return {self.text(key): self.value(each, depth + 1) for key, each in kept} | (
                {"…": f"cut here: {len(value):,} members in all"} if len(value) > MEMBERS else {}
            )
        items = [self.value(each, depth + 1) for each in value[:MEMBERS]]
        return items + ([f"… [cut here: {len(value):,} members in all]"] if len(value) > MEMBERS else [])
