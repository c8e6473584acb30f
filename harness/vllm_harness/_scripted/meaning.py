"""Meaning: what a scripted model expresses, before a dialect renders it as a family's native text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reasoning:
    """Reasoning that precedes an answer or a call."""

    text: str


@dataclass(frozen=True)
class Text:
    """Text for the user."""

    text: str


@dataclass(frozen=True)
class ToolCall:
    """A function call.

    Attributes:
        name: the function's name.
        arguments: a JSON object, or a string, which is written unchanged (for malformed calls).
    """

    name: str
    arguments: dict[str, Any] | str

    @property
    def arguments_json(self) -> str:
        """The arguments as a JSON string; a string is returned unchanged."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


Part = Reasoning | Text | ToolCall


@dataclass(frozen=True)
class Meaning:
    """The content of an assistant turn: its parts in order."""

    parts: tuple[Part, ...]

    @property
    def reasoning(self) -> str:
        """All reasoning, joined into one string."""
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def text(self) -> str:
        """All texts for the user, joined into one string."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @classmethod
    def of(
        cls, text: str | None = None, *, reasoning: str | None = None, calls: tuple[ToolCall, ...] = ()
    ) -> Meaning:
        """Creates the usual turn: reasoning, then text, then calls; omits reasoning or text that is None."""
        parts: list[Part] = []
        if reasoning is not None:
            parts.append(Reasoning(reasoning))
        if text is not None:
            parts.append(Text(text))
        return cls((*parts, *calls))


@dataclass(frozen=True)
class Raw:
    """A family's native text, special tokens included, exactly as the model generates it."""

    text: str
