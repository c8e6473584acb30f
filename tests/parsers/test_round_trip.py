"""Every family's dialect against vLLM's parsers in process: what was meant comes back.

Where it does not, `known.yaml` says so, and whose fault it is; a difference that went away is told as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict

from harness.environments import Environment, resolve
from harness.model_check import names_of
from harness.scripted.dialects import DialectError, render
from harness.scripted.families import FAMILIES, WITHOUT, Family
from harness.scripted.in_process import WAYS, Case, Parsed, parse_in_process
from harness.scripted.meaning import Meaning, Reasoning, Text, ToolCall

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VLLM = "0.32.0"
SYNTHETIC = [family for family in FAMILIES.values() if family.form]


def _tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = (
    _tool("get_weather", city="string", days="integer"),
    _tool("get_time"),
    _tool("f", s="string", i="integer", n="number", b="boolean", o="object", a="array"),
)
WEATHER = ToolCall("get_weather", {"city": "Paris", "days": 3})
TIME = ToolCall("get_time", {})
TYPES = ToolCall("f", {"s": "x", "i": -7, "n": 0.5, "b": True, "o": {"k": [1, {"z": "y"}]}, "a": ["p", 2]})
WORDS = ToolCall("get_weather", {"city": 'Zürich 🎉 "q" \\ \n line', "days": 1})
MEANINGS = {
    "text": Meaning.of("Hello there."),
    "reasoning, text": Meaning.of("Hello there.", reasoning="Let me think."),
    "call": Meaning.of(calls=(WEATHER,)),
    "call without arguments": Meaning.of(calls=(TIME,)),
    "call with every type": Meaning.of(calls=(TYPES,)),
    "text, call": Meaning.of("I will check.", calls=(WEATHER,)),
    "two calls": Meaning.of(calls=(WEATHER, TIME)),
    "three calls": Meaning.of(calls=(TIME, WEATHER, WEATHER)),
    "reasoning, call": Meaning.of(reasoning="Let me think.", calls=(WEATHER,)),
    "reasoning, text, calls": Meaning.of("I will check.", reasoning="Let me think.", calls=(WEATHER, TYPES)),
    "unicode": Meaning.of("Ça va? 你好 🎉", calls=(WORDS,)),
    "call, text": Meaning((WEATHER, Text("Let me know."))),
}


class Known(BaseModel):
    """Meanings that do not come back.

    Attributes:
        families, cases, ways: where; no ways: in every way.
        fault: `vllm`, or `unsure` where the format leaves it open.
        reference: upstream issue or pull request, or `unreported`.
        note: what comes back instead.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    families: tuple[str, ...]
    cases: tuple[str, ...]
    ways: tuple[str, ...] = WAYS
    fault: Literal["vllm", "unsure"]
    reference: str
    note: str


@pytest.fixture(scope="module")
def environment() -> Environment:
    return resolve(VLLM)


@pytest.fixture(scope="module")
def parsed(environment: Environment) -> list[Parsed]:
    return parse_in_process(environment, [(family, _cases(family)) for family in SYNTHETIC])


def _cases(family: Family) -> list[Case]:
    return list(_sayable(family))


def _sayable(family: Family) -> Iterator[Case]:
    for name, meaning in MEANINGS.items():
        if family.reasoning_parser is None and "reasoning" in name:
            continue
        try:
            yield Case(name=name, text=render(family.dialect, meaning), tools=TOOLS)
        except DialectError:
            continue


def _known() -> dict[tuple[str, str, str], Known]:
    rows = [Known(**row) for row in yaml.safe_load(Path(__file__).with_name("known.yaml").read_text())]
    return {
        (family, case, way): row
        for row in rows
        for family in row.families
        for case in row.cases
        for way in row.ways
    }


def _comes_back(meaning: Meaning, result: Parsed) -> bool:
    """White space around reasoning and text may go; the arguments must be the same JSON."""
    if result.error is not None:
        return False
    thoughts = "".join(part.text for part in meaning.parts if isinstance(part, Reasoning))
    words = "".join(part.text for part in meaning.parts if isinstance(part, Text))
    calls = [(part.name, part.arguments) for part in meaning.parts if isinstance(part, ToolCall)]
    try:
        found = [(call.name, json.loads(call.arguments)) for call in result.calls]
    except ValueError:
        return False
    return (
        (result.reasoning or "").strip() == thoughts.strip()
        and (result.content or "").strip() == words.strip()
        and found == calls
    )


def test_every_parser_that_vllm_registers_has_a_family_or_a_reason(environment: Environment) -> None:
    names = names_of(environment)
    tools = {family.tool_parser for family in FAMILIES.values()} - {None}
    reasoning = {family.reasoning_parser for family in FAMILIES.values()} - {None}
    assert tools | WITHOUT["tool_parsers"].keys() == names.tool_parsers
    assert reasoning | WITHOUT["reasoning_parsers"].keys() == names.reasoning_parsers
    assert len(tools) >= 50
    assert len(reasoning) >= 35


def test_the_parsers_of_every_family_take_its_tokenizer(parsed: list[Parsed]) -> None:
    refused = {result.family: result.error for result in parsed if result.case is None}
    assert not refused


def test_what_was_meant_comes_back_unless_it_is_known_not_to(parsed: list[Parsed]) -> None:
    results = {(result.family, str(result.case), str(result.way)): result for result in parsed}
    lost = {place for place, result in results.items() if not _comes_back(MEANINGS[place[1]], result)}
    known = _known()
    assert known.keys() <= results.keys()
    assert {place: results[place] for place in sorted(lost - known.keys())} == {}
    assert sorted(known.keys() - lost) == []  # they come back now: take them out of known.yaml
