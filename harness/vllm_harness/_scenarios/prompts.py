"""Checks that the prompt of a turn, as the model received it, contains the conversation so far."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vllm_harness._exchange.answer import Call
from vllm_harness._exchange.building import PastTurn, TurnInput
from vllm_harness._protocol import Finding
from vllm_harness._protocol.conversation import rules
from vllm_harness._protocol.core.differences import common_length
from vllm_harness._protocol.core.findings import brief
from vllm_harness._scenarios.results import Prompt

SHOWN = 60
"""The number of characters of a prompt that are shown before and after a difference."""


@dataclass(frozen=True)
class Element:
    """A part of a conversation that a prompt must contain.

    Attributes:
        kind: `message`, `function_call` or `function_call_output`.
        text: the text of a message or an output; the name of a call.
        values: the values in the arguments of a call, as text.
        arguments: the arguments of a call as the model wrote them.
    """

    kind: str
    text: str
    values: tuple[str, ...] = ()
    arguments: str = ""


def elements_of(before: Sequence[PastTurn], sent: TurnInput) -> list[Element]:
    """Lists the elements of the earlier turns and of what this turn sends, in order."""
    elements: list[Element] = []
    for said in before:
        elements += _of_sent(said.sent)
        elements += [*_of_text(said.answer.text), *map(_of_call, said.answer.open_calls)]
    return [*elements, *_of_sent(sent)]


def lost(prompt: str, elements: Sequence[Element], path: str) -> list[Finding]:
    """Finds elements of the conversation that a prompt lacks, contains in another order, or repeats.

    Texts may be plain or escaped as in JSON. A call is found if its name and its arguments come in order,
    between the texts around the call.

    Args:
        prompt: the text of the prompt.
        elements: the elements of the conversation.
        path: the path of the findings.
    """
    findings: list[Finding] = []
    places: dict[int, tuple[int, int]] = {}
    end = past_calls = 0
    for element in elements:
        if element.kind == "function_call":
            past_calls = _end_of((element.text, *element.values), prompt, past_calls) or past_calls
            continue
        span = _first(element.text, prompt, past_calls) or _first(element.text, prompt, end)
        if span is None:
            findings.append(_missing(element, prompt, path))
            continue
        places[id(element)] = span
        end = past_calls = span[1]
        written = prompt[span[0] : end]
        expected, actual = _times(written, (other.text for other in elements)), prompt.count(written)
        # a template may write arguments in its own way
        if not expected <= actual <= expected + _times(written, (other.arguments for other in elements)):
            findings.append(_repeated(element, expected, actual, path))
    return [*findings, *_lost_calls(prompt, elements, places, path)]


def foreign(prompt: str, elements: Sequence[Element], others: Sequence[Element], path: str) -> list[Finding]:
    """Finds elements in a prompt that belong to turns which the prompt's turn does not continue.

    Args:
        prompt: the text of the prompt.
        elements: the elements of the conversation.
        others: the elements of the other turns.
        path: the path of the findings.
    """
    texts = {element.text: element.kind for element in others if element.kind != "function_call"}
    expected = [part for element in elements for part in (element.text, element.arguments)]
    return [
        replace(rules.CP103.finding(path, "nothing", brief(text), right=_PROMPT), kind=kind)
        for text, kind in texts.items()
        if text in prompt and not _times(text, expected)
    ]


def differing(expected: Prompt, actual: Prompt, path: str, transport: str) -> list[Finding]:
    """Returns a finding if two prompts that should be equal differ.

    Args:
        expected, actual: the prompts.
        path: the path of the finding.
        transport: the transport of the expected prompt.
    """
    if expected.ids == actual.ids:
        return []
    same = common_length(expected.text, actual.text)
    shown = (brief(prompt.text[max(0, same - SHOWN) : same + SHOWN]) for prompt in (expected, actual))
    return [rules.CP101.finding(path, *shown, left=f"the prompt of {transport}", right=_PROMPT)]


_SAID, _PROMPT = "the conversation", "the prompt"


def _lost_calls(
    prompt: str, elements: Sequence[Element], places: dict[int, tuple[int, int]], path: str
) -> Iterator[Finding]:
    """Finds calls that are missing or repeated between the texts around them."""
    for calls, region in _between_texts(prompt, elements, places):
        for call, expected in Counter(calls).items():
            actual = _occurrences((call.text, *call.values), region)
            if actual < expected:
                yield _missing(call, region, path)
            elif actual > expected:
                yield _repeated(call, expected, actual, path)


def _between_texts(
    prompt: str, elements: Sequence[Element], places: dict[int, tuple[int, int]]
) -> Iterator[tuple[list[Element], str]]:
    """Yields the calls between two texts of the prompt, and the part of the prompt between these texts."""
    calls: list[Element] = []
    start = 0
    for element in elements:
        if element.kind == "function_call":
            calls.append(element)
        elif id(element) in places:
            yield calls, prompt[start : places[id(element)][0]]
            calls, start = [], places[id(element)][1]
    yield calls, prompt[start:]


def _occurrences(parts: Sequence[str], text: str) -> int:
    """Counts how often parts occur one after another in a text, with anything between them."""
    times, end = 0, _end_of(parts, text, 0)
    while end is not None:
        times, end = times + 1, _end_of(parts, text, end)
    return times


def _end_of(parts: Sequence[str], text: str, start: int) -> int | None:
    """Finds the end of parts that occur one after another from `start` on; None if they do not."""
    end = start
    for part in parts:
        span = _first(part, text, end)
        if span is None:
            return None
        end = span[1]
    return end if end > start else None


def _first(part: str, text: str, start: int) -> tuple[int, int] | None:
    """Finds the start and the end of the first occurrence of a text in any of its forms."""
    places = [(at, at + len(form)) for form in _forms(part) if (at := text.find(form, start)) >= 0]
    return min(places, default=None)


def _repeated(element: Element, expected: int, actual: int, path: str) -> Finding:
    counts = f"{_brief(element)} {expected} times", f"{actual} times"
    return replace(rules.CP101.finding(path, *counts, left=_SAID, right=_PROMPT), kind=element.kind)


def _brief(element: Element) -> str:
    call = element.kind == "function_call"
    return brief({"name": element.text, "arguments": element.values} if call else element.text)


def _missing(element: Element, prompt: str, path: str) -> Finding:
    finding = rules.CP102.finding(path, _brief(element), brief(prompt[-2 * SHOWN :]), left=_SAID)
    return replace(finding, kind=element.kind)


def _times(written: str, texts: Iterable[str]) -> int:
    """Counts how often a text occurs in other texts, plain or escaped as in JSON."""
    return sum(max(form.count(written) for form in _forms(text)) for text in texts)


def _forms(text: str) -> tuple[str, ...]:
    """Lists the forms of a text: plain, and escaped in the two ways that JSON allows."""
    return text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]


def _of_sent(sent: TurnInput) -> Iterator[Element]:
    for result in sent.results:
        if result.text:
            yield Element("function_call_output", result.text)
    for part in sent.user:
        yield from _of_text(part.text or "")


def _of_text(text: str) -> Iterator[Element]:
    if text.strip():
        yield Element("message", text.strip())


def _of_call(call: Call) -> Element:
    return Element("function_call", call.name, tuple(_leaves(call.values or {})), call.arguments)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, str):
        if value:
            yield value
    else:
        yield json.dumps(value)
