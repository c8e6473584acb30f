"""Generates random meanings and tool schemas with Hypothesis, and shrinks failures to the smallest.

A string may contain the family's markers if the format can express them: within a JSON string they are data
(RFC 8259). Text and reasoning may contain prefixes of markers, but no whole markers, which cannot be quoted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, assume, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from vllm_harness._exchange.delivery import Chunking, Delivery
from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.cases.marker_variants import marker_beginnings
from vllm_harness._regression.cases.meanings import chat_tool, marker_spans, markers
from vllm_harness._scripted.dialects import DialectError, render
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall

TRIES = 5
"""The largest number of meanings to generate per meaning with a new text."""
MOST = 12
"""The largest number of kinds of failure to search for in one family."""
PIECES = (
    *("a", "word", " ", "  ", "\n", "\n\n", "\t", '"', "'", "\\", "\\n", "{", "}", "[", "]", "(", ")"),
    *("<", ">", "</", "&", "&lt;", ":", ",", "=", "#", "|", "é", "你好", "🎉", "Ġ", "▁", "1", "-0.5", "null"),
    *("true", "None", "{}", "[]", '{"a": 1}', "```", "<b>", "</b>", "f(x=1)", "functions.f:0"),
)
NUMBERS = (0, 1, -1, 7, 2**31, 2**53 + 1, -(2**63))
FLOATS = (0.5, -0.25, 1e-7, 1e21, 3.0)
NAMES = ("tool_a", "tool_b", "tool_c")
Schema = dict[str, Any]
Strategy = st.SearchStrategy[Any]
Kind = TypeVar("Kind")
"""The kind of a failure; two failures of the same kind count as one."""


@dataclass(frozen=True)
class GeneratedMeaning:
    """A generated meaning, with the tools that it calls and the text that expresses it.

    Attributes:
        tools: maps the name of a tool to the `properties` of its parameter schema.
        text: the text in the family's format.
        spelled_spans: (start, end) of each marker within a string, where it is data and not a token.
        cuts: the token counts after which a chunk of the stream ends.
    """

    meaning: Meaning
    tools: dict[str, Schema]
    text: str
    spelled_spans: tuple[tuple[int, int], ...]
    cuts: tuple[int, ...]

    @property
    def own_delivery(self) -> Delivery:
        """The delivery in chunks that end at `cuts`, or in one chunk if `cuts` is empty."""
        return Delivery(Chunking.CUT_AT, cuts=self.cuts) if self.cuts else Delivery(Chunking.ALL)

    def case_input(self, name: str, deliveries: tuple[Delivery, ...] = ()) -> CaseInput:
        """Returns the input of a case with this meaning."""
        tools = tuple(chat_tool(name, properties) for name, properties in self.tools.items())
        return CaseInput(
            name=name,
            text=self.text,
            tools=tools,
            spelled_spans=self.spelled_spans,
            deliveries=deliveries,
        )


def generate(family: Family, budget: int, seed: int) -> list[GeneratedMeaning]:
    """Generates up to `budget` meanings that the family can render, sorted by the length of the text."""
    by_text: dict[str, GeneratedMeaning] = {}

    def is_enough(generated: GeneratedMeaning) -> bool:
        if len(by_text) < budget:
            by_text.setdefault(generated.text, generated)
        return len(by_text) == budget

    _search(family, is_enough, TRIES * budget, seed, (Phase.generate,))
    return sorted(by_text.values(), key=lambda generated: len(generated.text))


def failure_kinds(
    family: Family, kinds: Callable[[GeneratedMeaning], list[Kind]], budget: int, seed: int
) -> Iterator[tuple[Kind, GeneratedMeaning]]:
    """Yields each kind of failure in a family with the smallest meaning that shows it.

    Args:
        kinds: returns the kinds of failure that a meaning shows; must be deterministic.
        budget: the number of meanings to try for each kind.
    """
    known: list[Kind] = []
    while len(known) < MOST and (smallest := _smallest(family, kinds, known, budget, seed)):
        known.append(smallest[0])
        yield smallest


def _smallest(
    family: Family,
    kinds: Callable[[GeneratedMeaning], list[Kind]],
    known: Sequence[Kind],
    budget: int,
    seed: int,
) -> tuple[Kind, GeneratedMeaning] | None:
    """The first new kind of failure, with the smallest meaning that shows it; None if there is none."""
    new: list[Kind] = []

    def shows_new(generated: GeneratedMeaning) -> bool:
        shown = kinds(generated)
        if not new:
            new.extend([kind for kind in shown if kind not in known][:1])
        return bool(new) and new[0] in shown

    smallest = _search(family, shows_new, budget, seed, (Phase.generate, Phase.shrink))
    return (new[0], smallest) if smallest else None


def _search(
    family: Family,
    accepts: Callable[[GeneratedMeaning], bool],
    budget: int,
    seed: int,
    phases: Sequence[Phase],
) -> GeneratedMeaning | None:
    """Returns an accepted meaning, shrunk in `Phase.shrink`; None if no generated meaning is accepted."""
    options = settings(
        max_examples=budget,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    try:
        meanings = _meanings(family, _words(family), _arguments(family))
        return find(meanings, accepts, settings=options, random=Random(seed))
    except NoSuchExample:
        return None


@st.composite
def _meanings(draw: st.DrawFn, family: Family, words: Strategy, arguments: Strategy) -> GeneratedMeaning:
    parts: list[Part] = []
    tools: dict[str, dict[str, Schema]] = {}
    if family.reasoning_parser and draw(st.booleans()):
        parts.append(Reasoning(draw(words)))
    calls = draw(st.lists(arguments, max_size=len(NAMES))) if family.tool_parser else []
    has_text = draw(st.booleans())
    if has_text or not calls:
        parts.append(Text(draw(words)))
    for name, pairs in zip(NAMES, calls or [[]], strict=False):
        tools[name] = {f"p{index}": schema for index, (schema, _) in enumerate(pairs)}
        if calls:
            parts.append(ToolCall(name, {f"p{index}": value for index, (_, value) in enumerate(pairs)}))
    meaning = Meaning(tuple(parts))
    try:
        text = render(family.dialect, meaning)
    except DialectError:
        assume(False)
        raise
    cuts = draw(st.lists(st.integers(1, len(text.encode())), max_size=4, unique=True))
    offered = tools if family.tool_parser else {}
    return GeneratedMeaning(meaning, offered, text, marker_spans(family, meaning), tuple(sorted(cuts)))


def _arguments(family: Family) -> Strategy:
    """Generates (schema, value) pairs, so that schema and value shrink together."""
    simple = {
        "string": st.lists(st.sampled_from((*PIECES, *markers(family))), max_size=8).map("".join),
        "integer": st.sampled_from(NUMBERS),
        "number": st.sampled_from(FLOATS),
        "boolean": st.booleans(),
    }
    argument = _schema.flatmap(lambda schema: st.tuples(st.just(schema), _value(schema, simple)))
    return st.lists(argument, max_size=4)


def _object(inner: list[Schema]) -> Schema:
    return {"type": "object", "properties": {f"k{index}": schema for index, schema in enumerate(inner)}}


_simple: st.SearchStrategy[Schema] = st.sampled_from(
    [
        *({"type": kind} for kind in ("string", "integer", "number", "boolean")),
        {"type": "string", "enum": ["red", "7", "null", "a b"]},
    ]
)
_schema = st.recursive(
    _simple,
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        st.lists(inner, max_size=3).map(_object),
    ),
    max_leaves=3,
)


def _words(family: Family) -> st.SearchStrategy[str]:
    """Generates text or reasoning; each has a word at both ends, since outer white space may be dropped."""
    prefixes = dict.fromkeys(prefix for group in marker_beginnings(family).values() for prefix in group)
    pieces = st.sampled_from(PIECES)
    if prefixes:
        pieces = st.one_of(pieces, st.sampled_from(tuple(prefixes)))
    return st.lists(pieces, max_size=8).map(lambda drawn: f"So {''.join(drawn)} it is.")


def _value(schema: Schema, simple: dict[str, Strategy]) -> Strategy:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if (kind := schema["type"]) in simple:
        return simple[kind]
    if kind == "array":
        return st.lists(_value(schema["items"], simple), max_size=2)
    return st.fixed_dictionaries({key: _value(inner, simple) for key, inner in schema["properties"].items()})
