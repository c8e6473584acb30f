"""Wrong answers, made from the right ones: with one of them a test must fail, or its pass is empty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_harness.errors import UsageError
from vllm_harness.scripted.book_file import RuleSpec, SaySpec

ENDLESS = 20_000
"""Words of an answer that no server of these tests has room for."""


_SAYS = {
    "other": SaySpec(text="Bananas are yellow."),
    "nothing": SaySpec(raw=""),
    "endless": SaySpec(text="again ", repeat=ENDLESS),
}
KINDS = tuple(_SAYS)
"""The kinds of wrong answers, the cheapest first: a text that has nothing to do with the question, no text at
all, and one that never comes to an end."""


def wrong_answers(rule: RuleSpec, kinds: Sequence[str] = KINDS) -> Iterator[tuple[str, RuleSpec]]:
    """The wrong answers of these kinds in the place of a rule's: kind, rule."""
    for kind in kinds:
        yield kind, rule.model_copy(update={"say": _SAYS[kind], "turns": (), "choices": ()})


def read_kinds(text: str) -> tuple[str, ...]:
    """The kinds that a text names, separated by commas. Raises UsageError."""
    kinds = tuple(filter(None, text.split(",")))
    if unknown := set(kinds) - {*KINDS}:
        raise UsageError(f"no kind of wrong answer is {min(unknown)!r}", hint=f"use {', '.join(KINDS)}")
    return kinds
