"""What a dialect is, and what keeps markers out of its texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vllm_harness._errors import UsageError
from vllm_harness._scripted.meaning import Meaning

OTHER_NAME = "choose another name, or script the raw text"


class DialectError(UsageError):
    """A meaning that the format of this family cannot express."""


@dataclass(frozen=True)
class Dialect:
    """How a model family writes one assistant turn.

    Attributes:
        name: as in models.yaml.
        source: where the family's format is published.
        render: meaning -> raw text that follows the generation prompt, up to and with the token that
            ends the turn; DialectError where the format cannot express it.
        render_constrained: the same under a grammar (structured output, required or named tools), which
            leaves no room for blanks that the model likes to write; by default as `render`.
        markers: what has a meaning of its own in the format, and so stands in no text.
        ends: what the model generates to end a turn, that with calls first.
        thoughts: what stands before and after thoughts; None: the format has none.
        calls: what stands before and after calls.
        tokens: the markers of calls and thoughts that are one token each.
        render_anyway: the turn of a model that keeps to no order and number of parts; None: there is none.
    """

    name: str
    source: str
    render: Callable[[Meaning], str]
    render_constrained: Callable[[Meaning], str] | None = None
    markers: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    thoughts: tuple[str, str] | None = None
    calls: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    render_anyway: Callable[[Meaning], str] | None = None


def refuse_markers(text: str, markers: Iterable[str], dialect: str) -> None:
    """DialectError where the text holds a marker that would change what follows it."""
    found = [marker for marker in markers if marker in text]
    if found:
        raise DialectError(
            f"dialect {dialect} reads {found[0]} as a marker, so it cannot stand in {text!r}",
            hint="script the raw text or its token ids",
        )
