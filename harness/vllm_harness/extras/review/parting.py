"""Finds where an answer parts from what was expected, and the chunk that makes it wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from vllm_harness._regression.results.judge import common_start
from vllm_harness.extras.review.verdict import Message, Parting, Step

_SHOWN = 60
"""The number of characters to show before and after the place at which two texts part."""
Field = tuple[str, str]
"""The name and the text of a part of a message."""


def parting(expected: Message, actual: Message, steps: Sequence[Step] = ()) -> Parting | None:
    """Returns the first field in which two messages part; None if there is nothing to compare.

    Args:
        expected, actual: what should have come, and what came.
        steps: the chunks of the answer, if it was streamed.
    """
    if expected.rule or actual.error:
        return None
    for (name, wanted), (other, got) in zip_longest(
        _fields(expected), _fields(actual), fillvalue=("calls", "")
    ):
        where = name if name != "calls" else other
        if not _same(name, wanted.strip(), got.strip()):
            edge = common_start(wanted, got)
            return Parting(
                where=where,
                common=wanted[max(0, edge - _SHOWN) : edge],
                expected=_excerpt(wanted[edge:]),
                actual=_excerpt(got[edge:]),
                chunk=_wrong_from(expected, steps),
            )
    return None


def _fields(message: Message) -> Iterator[Field]:
    yield "reasoning", message.reasoning.lstrip()
    yield "text", message.content.lstrip()
    for index, (name, arguments) in enumerate(message.calls):
        yield f"call {index}: name", name or ""
        yield f"call {index}: arguments", arguments


def _same(name: str, wanted: str, got: str) -> bool:
    if wanted == got:
        return True
    try:
        return name.endswith("arguments") and json.dumps(json.loads(wanted)) == json.dumps(json.loads(got))
    except ValueError:
        return False


def _excerpt(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _wrong_from(expected: Message, steps: Sequence[Step]) -> int | None:
    """The number of the first chunk after which the answer is not the beginning of what was expected."""
    reasoning = content = ""
    arguments: dict[int, str] = {}
    for number, step in enumerate(steps, start=1):
        reasoning, content = reasoning + step.reasoning, content + step.content
        for call in step.calls:
            index = call.index or 0
            arguments[index] = arguments.get(index, "") + call.arguments
        begun = _begins(expected.reasoning, reasoning) and _begins(expected.content, content)
        if not begun or not all(_call_begins(expected, *call) for call in arguments.items()):
            return number
    return None


def _begins(whole: str, start: str) -> bool:
    """Whether a text can still become the whole, but for white space around it."""
    whole, start = whole.lstrip(), start.lstrip()
    return whole.startswith(start) or whole.rstrip() == start.rstrip()


def _call_begins(expected: Message, index: int, arguments: str) -> bool:
    """Whether a call can still become the expected one; blanks in JSON do not matter."""
    if index >= len(expected.calls):
        return False
    wanted, got = ("".join(text.split()) for text in (expected.calls[index][1], arguments))
    return wanted.startswith(got)
