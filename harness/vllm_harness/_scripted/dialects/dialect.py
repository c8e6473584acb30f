"""The interface of a dialect, and the check that refuses texts that contain its markers."""

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
        name: the dialect's name, as models.yaml refers to it.
        source: where the family's format is published; `unverified` in front if no template shows it.
        render: turns a meaning into the raw text that follows the generation prompt, including the token
            that ends the turn; raises DialectError if the format cannot express it.
        render_constrained: the same under a grammar (structured output, required or named tools), which
            forbids whitespace that the model would usually write; defaults to `render`.
        markers: strings that are special in the format and so must not appear in any text.
        ends: what the model generates to end a turn; the first entry is the one used after calls.
        reasoning: the strings before and after reasoning; None if the format has no reasoning.
        calls: the strings that mark the calls in a turn, such as those before and after them.
        tokens: the markers of calls and reasoning that are single tokens.
        render_anyway: renders a turn of a model that ignores the format's rules on the order and number of
            parts; None if the format has no such rules.
    """

    name: str
    source: str
    render: Callable[[Meaning], str]
    render_constrained: Callable[[Meaning], str] | None = None
    markers: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    reasoning: tuple[str, str] | None = None
    calls: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    render_anyway: Callable[[Meaning], str] | None = None


def refuse_markers(text: str, markers: Iterable[str], dialect: str) -> None:
    """Raises DialectError if the text contains one of the markers."""
    for marker in markers:
        if marker in text:
            raise DialectError(
                f"dialect {dialect} reads {marker} as a marker, so it cannot write it within {text!r}",
                hint="script the raw text or its token ids",
            )
