"""What a dialect is, and what most families share: reasoning, then text, then calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vllm_harness.errors import UsageError
from vllm_harness.scripted.meaning import Meaning, Reasoning, Text, ToolCall


class DialectError(UsageError):
    """A meaning that a model of this family has no way to say."""


@dataclass(frozen=True)
class Dialect:
    """How a model family writes one assistant turn.

    Attributes:
        name: key in DIALECTS and in models.yaml.
        source: where the family's format is published.
        render: meaning -> raw text that follows the generation prompt, up to and with the token that
            ends the turn; DialectError where the format cannot say it.
        render_constrained: the same under a grammar (structured output, required or named tools), which
            leaves no room for blanks that the model likes to write; by default as `render`.
    """

    name: str
    source: str
    render: Callable[[Meaning], str]
    render_constrained: Callable[[Meaning], str] | None = None


@dataclass(frozen=True)
class Turn:
    """A meaning in the order most families write: at most one reasoning and one text, then the calls."""

    reasoning: str | None
    text: str | None
    calls: tuple[ToolCall, ...]


def in_order(meaning: Meaning, dialect: str) -> Turn:
    """The meaning as a Turn; DialectError where its parts stand in another order or repeat."""
    order = [Reasoning, Text, ToolCall]
    ranks = [order.index(type(part)) for part in meaning.parts]
    if ranks != sorted(ranks) or ranks.count(0) > 1 or ranks.count(1) > 1:
        said = ", ".join(type(part).__name__ for part in meaning.parts)
        raise DialectError(
            f"dialect {dialect} writes one reasoning, then one text, then calls; not {said}",
            hint="split it into turns, or script the raw text",
        )
    return Turn(
        reasoning=next((p.text for p in meaning.parts if isinstance(p, Reasoning)), None),
        text=next((p.text for p in meaning.parts if isinstance(p, Text)), None),
        calls=tuple(p for p in meaning.parts if isinstance(p, ToolCall)),
    )


def refuse_markers(text: str, markers: Iterable[str], dialect: str) -> None:
    """DialectError where the text holds a marker that would change what follows it."""
    found = [marker for marker in markers if marker in text]
    if found:
        raise DialectError(
            f"dialect {dialect} reads {found[0]} as a marker, so it cannot stand in {text!r}",
            hint="script the raw text or its token ids",
        )
