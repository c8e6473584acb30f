"""Turns right answers into wrong answers; a test that passes with all of them does not check content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vllm_harness._errors import UsageError
from vllm_harness._scripted.book_file import CallSpec, SaySpec
from vllm_harness.extras.upstream.books import UpstreamRule

Rules = tuple[UpstreamRule, ...]


def _says(say: SaySpec) -> Callable[[UpstreamRule], Rules]:
    """Returns a function that makes a rule say something else."""
    return lambda rule: (rule.model_copy(update={"say": say, "turns": (), "choices": ()}),)


def _truncated(rule: UpstreamRule) -> Rules:
    return (rule.model_copy(update={"limit": 1}),)


def _varying(rule: UpstreamRule) -> Rules:
    """Returns rules that answer the first request differently from later requests."""
    (first,), (others,) = _says(_OTHER)(rule), _says(_ANOTHER)(rule)
    return (first.model_copy(update={"name": f"{rule.name}, first", "times": 1}), others)


_OTHER = SaySpec(text="Bananas are yellow, and they grow in bunches on tall plants where it is warm.")
_ANOTHER = SaySpec(text="Seven ships sailed to the north at dawn, and none of them came home that year.")
_MAKES: dict[str, Callable[[UpstreamRule], Rules]] = {
    "other": _says(_OTHER),
    "nothing": _says(SaySpec(raw="")),
    "call": _says(SaySpec(calls=(CallSpec(name="peel", arguments={"fruit": "banana"}),))),
    "reasoning": _says(SaySpec(reasoning="Bananas are yellow.", text="")),
    "truncated": _truncated,
    "varying": _varying,
}
_OLD_NAMES = {"thoughts": "reasoning", "cut": "truncated"}  # accepted until 0.2
KINDS = tuple(_MAKES)
"""The kinds of wrong answers, in the order in which they are tried: unrelated text, an empty answer, a call
of a function that does not exist, reasoning with empty text, the right answer truncated after its first
token, and unrelated text that differs after the first request. Each answer has few tokens."""


def wrong_answers(rule: UpstreamRule, kinds: Sequence[str] = KINDS) -> Iterator[tuple[str, Rules]]:
    """Yields each kind with the rules that replace `rule` to give that kind of wrong answer."""
    for kind in kinds:
        yield kind, _MAKES[kind](rule)


def read_kinds(text: str) -> tuple[str, ...]:
    """Parses a comma-separated list of kinds, or `all`. Raises UsageError for an unknown kind."""
    kinds = tuple(_OLD_NAMES.get(kind, kind) for kind in text.split(",") if kind)
    if kinds == ("all",):
        return KINDS
    if unknown := set(kinds) - {*KINDS}:
        raise UsageError(
            f"{min(unknown)!r} is not a kind of wrong answer", hint=f"use all, or some of {', '.join(KINDS)}"
        )
    return kinds
