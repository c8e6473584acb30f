"""Limits the length of a case's texts on the page, each and in total; truncated texts are marked."""

from __future__ import annotations

from typing import Any

TEXT = 100_000  # characters of one text
CASE = 2_000_000  # characters of all texts of a case
SHORT = 300  # characters of a text once the case has used up its characters
MEMBERS = 20_000  # members of a list or a mapping
DEPTH = 60


class Allowance:
    """The number of characters that a case may still use.

    Args:
        characters: the initial number.
    """

    def __init__(self, characters: int = CASE) -> None:
        self._left = characters

    def text(self, text: str) -> str:
        """Returns the text, or its start and its length if it is too long."""
        limit = min(TEXT, max(self._left, SHORT))
        self._left -= min(len(text), limit)
        if len(text) <= limit:
            return text
        return f"{text[:limit]}… [truncated: {len(text):,} characters in total]"

    def value(self, value: Any, depth: int = 0) -> Any:
        """Returns a JSON value with limited texts, members and depth."""
        if isinstance(value, str):
            return self.text(value)
        if not isinstance(value, dict | list | tuple):
            return value
        if depth == DEPTH:
            return f"… [truncated: nested more than {DEPTH} levels deep]"
        self._left -= 2 * len(value)
        if isinstance(value, dict):
            members = list(value.items())[:MEMBERS]
            return {self.text(key): self.value(member, depth + 1) for key, member in members} | (
                {"…": f"truncated: {len(value):,} members in total"} if len(value) > MEMBERS else {}
            )
        items = [self.value(item, depth + 1) for item in value[:MEMBERS]]
        return items + ([f"… [truncated: {len(value):,} members in total]"] if len(value) > MEMBERS else [])
