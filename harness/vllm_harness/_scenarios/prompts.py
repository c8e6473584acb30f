"""What a turn's prompt has kept of the turns before it, by the tokens that the model was given."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vllm_harness._exchange.answer import Call
from vllm_harness._exchange.building import Said, Sent
from vllm_harness._protocol import Finding
from vllm_harness._protocol.conversation import rules
from vllm_harness._protocol.core.differences import common_length
from vllm_harness._protocol.core.findings import brief
from vllm_harness._scenarios.results import Prompt

SHOWN = 60
"""Characters of a prompt that are shown before and after a difference."""


@dataclass(frozen=True)
class Element:
    """A part of a conversation that a prompt must hold.

    Attributes:
        kind: `message`, `function_call` or `function_call_output`.
        text: of a message or an output; of a call, the name.
        values: of a call: the texts of its arguments.
        arguments: of a call, as the model wrote them.
    """

    kind: str
    text: str
    values: tuple[str, ...] = ()
    arguments: str = ""


def elements_of(line: Sequence[Said], sent: Sent) -> list[Element]:
    """What was said, in order: the turns of the past, then what this turn sends."""
    found: list[Element] = []
    for said in line:
        found += [*_of_sent(said.sent), *_of_text(said.answer.text), *map(_of_call, said.answer.open_calls)]
    return [*found, *_of_sent(sent)]


def lost(prompt: str, elements: Sequence[Element], path: str) -> list[Finding]:
    """What a prompt lacks of a conversation, has in another order, or more than once.

    Texts are looked for as they are or as JSON writes them; a call, between the texts around it, by its name
    and its arguments in order.

    Args:
        prompt: the text of the prompt.
        elements: of the conversation.
        path: of the findings.
    """
    findings: list[Finding] = []
    places: dict[int, tuple[int, int]] = {}
    end = past_calls = 0
    for element in elements:
        if element.kind == "function_call":
            past_calls = _end_of((element.text, *element.values), prompt, past_calls) or past_calls
            continue
        found = _first(element.text, prompt, past_calls) or _first(element.text, prompt, end)
        if found is None:
            findings.append(_missing(element, prompt, path))
            continue
        places[id(element)] = found
        end = past_calls = found[1]
        written = prompt[found[0] : end]
        once, times = _times(written, (each.text for each in elements)), prompt.count(written)
        # a template may write arguments in its own way
        if not once <= times <= once + _times(written, (each.arguments for each in elements)):
            findings.append(_repeated(element, once, times, path))
    return [*findings, *_lost_calls(prompt, elements, places, path)]


def foreign(prompt: str, elements: Sequence[Element], others: Sequence[Element], path: str) -> list[Finding]:
    """What a prompt holds of turns that its own does not continue.

    Args:
        prompt: the text of the prompt.
        elements: of the conversation.
        others: of the turns beside it.
        path: of the findings.
    """
    texts = {each.text: each.kind for each in others if each.kind != "function_call"}
    held = [part for each in elements for part in (each.text, each.arguments)]
    found = [text for text in texts if text in prompt and not _times(text, held)]
    return [
        replace(rules.CP103.finding(path, "nothing", brief(text), right=_PROMPT), kind=texts[text])
        for text in found
    ]


def differing(expected: Prompt, actual: Prompt, path: str, of: str) -> list[Finding]:
    """A finding where two prompts that should be the same are not.

    Args:
        expected, actual: the two.
        path: of the finding.
        of: the transport that the first is of.
    """
    if expected.ids == actual.ids:
        return []
    same = common_length(expected.text, actual.text)
    shown = (brief(each.text[max(0, same - SHOWN) : same + SHOWN]) for each in (expected, actual))
    return [rules.CP101.finding(path, *shown, left=f"the prompt of {of}", right=_PROMPT)]


_SAID, _PROMPT = "the conversation", "the prompt"


def _lost_calls(
    prompt: str, elements: Sequence[Element], places: dict[int, tuple[int, int]], path: str
) -> Iterator[Finding]:
    """Calls that are not between the texts around them, or more often than they were made there."""
    for between, region in _between_texts(prompt, elements, places):
        for call, once in Counter(between).items():
            times = _occurrences((call.text, *call.values), region)
            if times < once:
                yield _missing(call, region, path)
            elif times > once:
                yield _repeated(call, once, times, path)


def _between_texts(
    prompt: str, elements: Sequence[Element], places: dict[int, tuple[int, int]]
) -> Iterator[tuple[list[Element], str]]:
    """The calls between two texts that the prompt holds, and the part of the prompt between those."""
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
    """How often parts follow one another in a text, other words between them aside."""
    times, end = 0, _end_of(parts, text, 0)
    while end is not None:
        times, end = times + 1, _end_of(parts, text, end)
    return times


def _end_of(parts: Sequence[str], text: str, start: int) -> int | None:
    """Where parts that follow one another from a place on end; None where they do not."""
    end = start
    for part in parts:
        found = _first(part, text, end)
        if found is None:
            return None
        end = found[1]
    return end if end > start else None


def _first(part: str, text: str, start: int) -> tuple[int, int] | None:
    """The first place of a text, in any of its forms."""
    places = [(at, at + len(form)) for form in _forms(part) if (at := text.find(form, start)) >= 0]
    return min(places, default=None)


def _repeated(element: Element, once: int, times: int, path: str) -> Finding:
    wanted, actual = f"{_brief(element)} {once} times", f"{times} times"
    return replace(rules.CP101.finding(path, wanted, actual, left=_SAID, right=_PROMPT), kind=element.kind)


def _brief(element: Element) -> str:
    call = element.kind == "function_call"
    return brief({"name": element.text, "arguments": element.values} if call else element.text)


def _missing(element: Element, prompt: str, path: str) -> Finding:
    finding = rules.CP102.finding(path, _brief(element), brief(prompt[-2 * SHOWN :]), left=_SAID)
    return replace(finding, kind=element.kind)


def _times(written: str, texts: Iterable[str]) -> int:
    """How often a text occurs in others, as they are or as JSON writes them."""
    return sum(max(form.count(written) for form in _forms(text)) for text in texts)


def _forms(text: str) -> tuple[str, ...]:
    """A text as it is, and as JSON may write it."""
    return text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]


def _of_sent(sent: Sent) -> Iterator[Element]:
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
