"""Arbitrary meanings against arbitrary schemas: made up from a seed, the smallest first.

So the first that fails in a way is also the smallest of its batch. A string may hold the family's own
markers, where the format has a way to say them: within a JSON string they are data (RFC 8259).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.scripted.dialects import DialectError, render
from harness.scripted.families import Family
from harness.scripted.in_process import Case
from harness.scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall

BUDGET = 40
PIECES = (
    *("a", "word", " ", "  ", "\n", "\n\n", "\t", '"', "'", "\\", "\\n", "{", "}", "[", "]", "(", ")"),
    *("<", ">", "</", "&", "&lt;", ":", ",", "=", "#", "|", "é", "你好", "🎉", "Ġ", "▁", "1", "-0.5", "null"),
    *("true", "None", "{}", "[]", '{"a": 1}', "```", "<b>", "</b>", "f(x=1)", "functions.f:0"),
)
NUMBERS = (0, 1, -1, 7, 2**31, 2**53 + 1, -(2**63))
FLOATS = (0.5, -0.25, 1e-7, 1e21, 3.0)
TRIES = 20


@dataclass(frozen=True)
class Made:
    """A case of our making, and what it means."""

    case: Case
    meaning: Meaning


def made(family: Family, budget: int, seed: int) -> list[Made]:
    """So many meanings that the family can say, from a seed; shortest texts first."""
    source = random.Random(seed)
    found = [one for one in (_one(family, source, number) for number in range(budget)) if one]
    return sorted(found, key=lambda one: len(one.case.text))


def _one(family: Family, source: random.Random, number: int) -> Made | None:
    """One meaning; None where the format had no way to say any of those that were tried."""
    for _ in range(TRIES):
        size = 1 + number % 5
        tools = [_tool(source, f"tool_{letter}", size) for letter in "ab"]
        meaning = Meaning(tuple(_parts(source, family, tools, size)))
        try:
            text = render(family.dialect, meaning)
        except DialectError:
            continue
        return Made(
            Case(name=f"property {number}", text=text, tools=tuple(t.offered for t in tools)), meaning
        )
    return None


@dataclass(frozen=True)
class _Tool:
    name: str
    schema: dict[str, Any]

    @property
    def offered(self) -> dict[str, Any]:
        return {"type": "function", "function": {"name": self.name, "parameters": self.schema}}


def _tool(source: random.Random, name: str, size: int) -> _Tool:
    properties = {f"p{index}": _schema(source, depth=2) for index in range(source.randint(0, size))}
    return _Tool(name, {"type": "object", "properties": properties})


def _schema(source: random.Random, depth: int) -> dict[str, Any]:
    simple: list[dict[str, Any]] = [{"type": kind} for kind in ("string", "integer", "number", "boolean")]
    if depth == 0 or source.random() < 0.7:
        return source.choice([*simple, {"type": "string", "enum": ["red", "7", "null", "a b"]}])
    if source.random() < 0.5:
        return {"type": "array", "items": _schema(source, depth - 1)}
    keys = {f"k{index}": _schema(source, depth - 1) for index in range(source.randint(0, 2))}
    return {"type": "object", "properties": keys}


def _parts(source: random.Random, family: Family, tools: list[_Tool], size: int) -> Iterator[Part]:
    pieces = (*PIECES, *_markers(family))
    if family.reasoning_parser and source.random() < 0.5:
        yield Reasoning(_words(source, PIECES, size))
    calls = source.randint(0, 3) if family.tool_parser else 0
    if not calls or source.random() < 0.3:
        yield Text(_words(source, PIECES, size))
    for _ in range(calls):
        tool = source.choice(tools)
        arguments = {
            name: _value(source, schema, pieces, size) for name, schema in tool.schema["properties"].items()
        }
        yield ToolCall(tool.name, arguments)


def _markers(family: Family) -> tuple[str, ...]:
    if family.form is None:
        return ()
    return (*family.form.calls.tokens, family.form.calls.close.strip() or "]")


def _words(source: random.Random, pieces: tuple[str, ...], size: int) -> str:
    """Begins and ends with a word, since blanks around a text may go."""
    inner = "".join(source.choice(pieces) for _ in range(source.randint(0, 2 * size)))
    return f"So {inner} it is."


def _value(source: random.Random, schema: dict[str, Any], pieces: tuple[str, ...], size: int) -> Any:
    if "enum" in schema:
        return source.choice(schema["enum"])
    match schema["type"]:
        case "string":
            return "".join(source.choice(pieces) for _ in range(source.randint(0, 2 * size)))
        case "integer":
            return source.choice(NUMBERS)
        case "number":
            return source.choice(FLOATS)
        case "boolean":
            return source.random() < 0.5
        case "array":
            return [_value(source, schema["items"], pieces, size) for _ in range(source.randint(0, 2))]
    return {key: _value(source, inner, pieces, size) for key, inner in schema["properties"].items()}
