"""The case group `cost`: growing answers, read from growing.yaml and rendered at doubling lengths."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import yaml

from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.case import Case, CaseInput, CaseSet, Expected, Grown, Run, Topic
from vllm_harness._regression.cases.meanings import Meanings
from vllm_harness._scripted.dialects import Dialect, DialectError, find_dialect, render
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.meaning import Meaning, ToolCall

FILE = Path(__file__).with_name("growing.yaml")
SHORTEST, LONGEST = 256, 65536
"""The approximate number of tokens in the shortest and in the longest answer."""
BLOCKED_S = 0.1
"""The longest time, in seconds, for which one step may block an event loop."""
LENGTHS = 6
"""The number of lengths at which an answer with a maximum count (`most`) is measured."""
_PLACE = "PLACEHOLDER"
_CALL = ToolCall("get_weather", {"city": _PLACE, "days": 3})
_ORDINARY_CALL = ToolCall("get_weather", {"city": "Paris", "days": 3})
_PROPERTY = {
    "type": "object",
    "description": "What the function is told about one of the things that it works on, in a sentence.",
    "properties": {"kind": {"type": "string", "enum": ["one", "another", "none"]}, "n": {"type": "integer"}},
}
_PROPERTIES = 12
"""The number of properties of each tool that is not `small`, in an answer whose number of tools grows."""


class Growing(StrEnum):
    """The part of a request or an answer that grows."""

    TEXT = "text"
    REASONING = "reasoning"
    STRING = "string"
    LIST = "list"
    OBJECT = "object"
    NESTING = "nesting"
    CALLS = "calls"
    TOOLS = "tools"


class GrowingAnswer(StrictModel):
    """An answer with one growing part; the keys are explained at the top of growing.yaml."""

    name: str
    grows: Growing
    unit: str = ""
    raw: str = ""
    before: str = ""
    after: str = ""
    truncated: bool = False
    most: int | None = None
    small: bool = False
    tool_parsers: tuple[str, ...] = ()
    served: bool = False

    def meaning(self, count: int) -> Meaning:
        """The answer's content, with the unit repeated `count` times."""
        match self.grows:
            case Growing.TEXT:
                return Meaning.of(self.unit * count)
            case Growing.REASONING:
                return Meaning.of("Done.", reasoning=self.unit * count)
            case Growing.CALLS:
                return Meaning.of(calls=(_ORDINARY_CALL,) * count)
            case Growing.TOOLS:
                return Meaning.of(calls=(_ORDINARY_CALL,))
        return Meaning.of(calls=(ToolCall("f", self._arguments(count)),))

    def _arguments(self, count: int) -> dict[str, Any]:
        match self.grows:
            case Growing.LIST:
                return {"a": ["item"] * count}
            case Growing.OBJECT:
                return {"o": {f"key{number}": number for number in range(count)}}
            case Growing.NESTING:
                return {"a": _nested(count)}
        return {"s": self.unit * count}


class CostTable(StrictModel):
    """The contents of growing.yaml."""

    answers: tuple[GrowingAnswer, ...]


@cache
def load_growing_answers(path: Path = FILE) -> tuple[GrowingAnswer, ...]:
    """Reads growing.yaml. Raises pydantic's ValidationError, which names the key, if it is malformed."""
    return CostTable.model_validate(yaml.safe_load(path.read_text())).answers


def cost_cases(family: Family, meanings: Meanings) -> CaseSet:
    """Makes cases from the growing answers of a family, each with all lengths of the answer."""
    cases, left_out = [], {}
    for answer in load_growing_answers():
        if answer.tool_parsers and family.tool_parser not in answer.tool_parsers:
            continue
        try:
            lengths = list(_lengths(family, answer))
        except DialectError as error:
            left_out[answer.name] = error.message
            continue
        many = (
            tuple(_many_tools(answer.most or 0, small=answer.small)) if answer.grows is Growing.TOOLS else ()
        )
        tools = (*meanings.tools_offered(), *many) if family.tool_parser else ()
        for name, grown in lengths:
            input_ = CaseInput(name=name, text=grown[0].text, tools=tools, grown=grown)
            cases.append(Case(input_, Topic.COST, Expected(), essential=answer.served))
    return CaseSet(family, "cost", tuple(cases), left_out)


def _lengths(family: Family, answer: GrowingAnswer) -> Iterator[tuple[str, tuple[Grown, ...]]]:
    """Yields the names of an answer's cases, each with the lengths to measure."""
    if answer.grows is Growing.REASONING and family.reasoning_parser is None:
        raise DialectError("the family has no reasoning parser", hint="leave the reasoning out")
    if answer.grows not in (Growing.TEXT, Growing.REASONING) and family.tool_parser is None:
        raise DialectError("the family has no tool parser", hint="leave the calls out")
    if answer.raw:
        for name, before, unit, after in _raw(family, answer):
            counts = _counts(_tokens(family, unit))
            yield name, tuple(Grown(runs=((before, 1), (unit, count), (after, 1))) for count in counts)
        return
    if answer.most:
        counts = sorted({max(1, answer.most >> shift) for shift in range(LENGTHS)})
    else:
        counts = _counts(_unit_tokens(family, answer))
    yield answer.name, tuple(_grown(family, answer, count) for count in counts)


def _grown(family: Family, answer: GrowingAnswer, count: int) -> Grown:
    tools = count if answer.grows is Growing.TOOLS else None
    return Grown(runs=_rendered(family, answer, count), tools=tools)


def _counts(tokens: int) -> list[int]:
    """How many times a unit of `tokens` tokens is repeated, from the shortest answer to the longest."""
    lengths = [LONGEST >> shift for shift in range((LONGEST // SHORTEST).bit_length())]
    return sorted({max(1, length // tokens) for length in lengths})


def _tokens(family: Family, text: str) -> int:
    """Estimates the number of tokens in a text: one for each marker, and one for each other byte."""
    for token in sorted(find_dialect(family.dialect).tokens, key=len, reverse=True):
        text = text.replace(token, "\0")
    return max(1, len(text.encode()))


def _unit_tokens(family: Family, answer: GrowingAnswer) -> int:
    one, two = (_body(family, answer.meaning(count)) for count in (20, 30))
    return max(1, round((_tokens(family, two) - _tokens(family, one)) / 10))


def _rendered(family: Family, answer: GrowingAnswer, count: int) -> tuple[Run, ...]:
    text = render(family.dialect, answer.meaning(count))
    if answer.truncated:
        end = text.rfind(answer.unit.strip()) + len(answer.unit.strip())
        text = text[:end] + _end(family, text)
    units = dict.fromkeys((answer.unit, json.dumps(answer.unit)[1:-1]))
    return next((runs for unit in units if unit and len(runs := _runs(text, unit)) > 1), ((text, 1),))


def _runs(text: str, unit: str) -> tuple[Run, ...]:
    """Splits a text into runs of a repeated unit, so that a long text takes little space."""
    pieces = re.split(f"((?:{re.escape(unit)}){{4,}})", text)
    runs = (
        (unit, len(piece) // len(unit)) if number % 2 else (piece, 1) for number, piece in enumerate(pieces)
    )
    return tuple(run for run in runs if run[0])


def _raw(family: Family, answer: GrowingAnswer) -> Iterator[tuple[str, str, str, str]]:
    """Yields each case of an answer: name, text before the growing part, repeated unit, text after it."""
    reasoning = "Let me think." if family.reasoning_parser else None
    text = render(family.dialect, Meaning.of(_PLACE, reasoning=reasoning))
    before, _, after = text.partition(_PLACE)
    after = _end(family, text) if answer.truncated else after
    parts = (answer.before, answer.raw, answer.after)
    wanted = {*Template("".join(parts)).get_identifiers()}
    pieces = _pieces(family, wanted)
    dialect = find_dialect(family.dialect)
    of_calls = dialect.calls if family.tool_parser else ()
    markers = dict.fromkeys((*of_calls, *dialect.tokens)) if "marker" in wanted else ("",)
    for marker in markers:
        start, unit, rest = (Template(part).substitute(pieces, marker=marker) for part in parts)
        if not unit:
            raise DialectError("the family's format has no such piece", hint="leave it out")
        yield f"{answer.name}, {marker}" if marker else answer.name, before + start, unit, rest + after


def _pieces(family: Family, wanted: set[str]) -> dict[str, str]:
    """The pieces of a family's format that an answer's raw text refers to."""
    dialect = find_dialect(family.dialect)
    pieces: dict[str, str] = {}
    if "think" in wanted:
        pieces["think"] = dialect.reasoning[0] if dialect.reasoning else ""
    if not wanted - {"think"}:
        return pieces
    if family.tool_parser is None:
        raise DialectError("the family has no tool parser", hint="leave the calls out")
    call = _without_end_of_reasoning(dialect, _body(family, Meaning.of(calls=(_CALL,))))
    markers = dialect.calls or (call[:1],)
    opened = min((marker for marker in markers if marker in call), key=call.find, default=call[:1])
    to_value = call.partition(_PLACE)[0]
    return {
        **pieces,
        "open": opened,
        "close": max(markers, key=call.rfind),
        "open_start": opened[:-1] or opened,
        "start": call.partition(_CALL.name)[0] or call[:1],
        "named": call.partition(_CALL.name)[0] + _CALL.name,
        "head": f"{to_value}Paris",
        "between": call.partition(_PLACE)[2].rpartition("3")[0],
        "call": call.replace(_PLACE, "Paris"),
    }


def _without_end_of_reasoning(dialect: Dialect, call: str) -> str:
    """Removes the end of the reasoning, which some formats require before a call."""
    ends = dialect.reasoning[1].strip() if dialect.reasoning else ""
    return call.partition(ends)[2] if ends and ends in call else call


def _body(family: Family, meaning: Meaning) -> str:
    text = render(family.dialect, meaning)
    return text.removesuffix(_end(family, text))


def _end(family: Family, text: str) -> str:
    """The marker at the end of a text that ends the model's turn."""
    return next(end for end in find_dialect(family.dialect).ends if text.endswith(end))


def _nested(depth: int) -> list[Any]:
    value: list[Any] = [1]
    for _ in range(depth):
        value = [value]
    return value


def _many_tools(count: int, *, small: bool) -> Iterator[dict[str, Any]]:
    properties = {f"property_{number}": _PROPERTY for number in range(_PROPERTIES)}
    if small:
        properties = {"n": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    for number in range(count):
        yield {"type": "function", "function": {"name": f"function_{number}", "parameters": schema}}
