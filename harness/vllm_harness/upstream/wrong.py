"""Wrong answers, made from the right ones: with one of them a test must fail, or its pass is empty."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_harness.scripted.book_file import RuleSpec, SaySpec

ENDLESS = 20_000
"""Words of an answer that no server of these tests has room for."""


def wrong_answers(rule: RuleSpec) -> Iterator[tuple[str, RuleSpec]]:
    """The wrong answers in the place of a rule's, the cheapest first: kind, rule.

    `other` is a text that has nothing to do with the question, `nothing` is no text at all, and `endless`
    never comes to an end.
    """
    for kind, say in (
        ("other", SaySpec(text="Bananas are yellow.")),
        ("nothing", SaySpec(ids=())),
        ("endless", SaySpec(text="again ", repeat=ENDLESS)),
    ):
        yield kind, rule.model_copy(update={"say": say, "turns": (), "choices": ()})
