"""Wrong answers, made from the right ones: with one of them a test must fail, or its pass is empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vllm_harness._errors import UsageError
from vllm_harness._scripted.book_file import CallSpec, SaySpec
from vllm_harness.extras.upstream.books import UpstreamRule

Rules = tuple[UpstreamRule, ...]


def _says(say: SaySpec) -> Callable[[UpstreamRule], Rules]:
    """What makes of a rule one that says this."""
    return lambda rule: (rule.model_copy(update={"say": say, "turns": (), "choices": ()}),)


def _cut(rule: UpstreamRule) -> Rules:
    return (rule.model_copy(update={"limit": 1}),)


def _varying(rule: UpstreamRule) -> Rules:
    """Another answer to the first request than to those that follow it."""
    (first,), (others,) = _says(_OTHER)(rule), _says(_ANOTHER)(rule)
    return (first.model_copy(update={"name": f"{rule.name}, first", "times": 1}), others)


_OTHER = SaySpec(text="Bananas are yellow, and they grow in bunches on tall plants where it is warm.")
_ANOTHER = SaySpec(text="Seven ships sailed to the north at dawn, and none of them came home that year.")
_MAKES: dict[str, Callable[[UpstreamRule], Rules]] = {
    "other": _says(_OTHER),
    "nothing": _says(SaySpec(raw="")),
    "call": _says(SaySpec(calls=(CallSpec(name="peel", arguments={"fruit": "banana"}),))),
    "thoughts": _says(SaySpec(reasoning="Bananas are yellow.", text="")),
    "cut": _cut,
    "varying": _varying,
}
KINDS = tuple(_MAKES)
"""The kinds of wrong answers, in the order in which they are tried: a text that has nothing to do with the
question, no token but the end, a call of a function that there is not, thoughts and an empty text, the right
answer cut after its first token, and a text that is another one the first time. Each has few tokens."""


def wrong_answers(rule: UpstreamRule, kinds: Sequence[str] = KINDS) -> Iterator[tuple[str, Rules]]:
    """The wrong answers of these kinds in the place of a rule's: the kind, and the rules that say it."""
    for kind in kinds:
        yield kind, _MAKES[kind](rule)


def read_kinds(text: str) -> tuple[str, ...]:
    """The kinds that a text names, separated by commas; `all` names each. Raises UsageError."""
    kinds = tuple(filter(None, text.split(",")))
    if kinds == ("all",):
        return KINDS
    if unknown := set(kinds) - {*KINDS}:
        raise UsageError(
            f"no kind of wrong answer is {min(unknown)!r}", hint=f"use all, or of {', '.join(KINDS)}"
        )
    return kinds
