"""Arbitrary meanings against arbitrary schemas, made up by hypothesis; failures shrunk to the smallest.

A string may hold the family's own markers, where the format has a way to say them: within a JSON string they
are data (RFC 8259).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, assume, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from vllm_harness.regression.cases.meanings import markers, quotes
from vllm_harness.regression.engines.in_process import Case
from vllm_harness.scripted.dialects import DialectError, render
from vllm_harness.scripted.families import Family
from vllm_harness.scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall

BUDGET = 40
TRIES = 5
"""Meanings that are made up for one that says something new."""
MOST = 12
"""Kinds of failure that are looked for in one family."""
PIECES = (
    *("a", "word", " ", "  ", "\n", "\n\n", "\t", '"', "'", "\\", "\\n", "{", "}", "[", "]", "(", ")"),
    *("<", ">", "</", "&", "&lt;", ":", ",", "=", "#", "|", "é", "你好", "🎉", "Ġ", "▁", "1", "-0.5", "null"),
    *("true", "None", "{}", "[]", '{"a": 1}', "```", "<b>", "</b>", "f(x=1)", "functions.f:0"),
)
NUMBERS = (0, 1, -1, 7, 2**31, 2**53 + 1, -(2**63))
FLOATS = (0.5, -0.25, 1e-7, 1e21, 3.0)
NAMES = ("tool_a", "tool_b", "tool_c")
Schema = dict[str, Any]
Kind = tuple[str, str]
"""How it was asked, and what was wrong."""


@dataclass(frozen=True)
class Made:
    """A meaning of our making.

    Attributes:
        meaning: what is said.
        tools: name -> properties of its parameters' schema.
        text: how the family says it.
        quoted: where that has a marker within a string, where it is data and no token of its own: from, to.
        cuts: after which tokens a stream of it is cut.
    """

    meaning: Meaning
    tools: dict[str, Schema]
    text: str
    quoted: tuple[tuple[int, int], ...]
    cuts: tuple[int, ...]

    @property
    def cut(self) -> str:
        """The way of parsing it so; without a cut, all in one delta."""
        return f"at {','.join(map(str, self.cuts))}" if self.cuts else "0"

    def case(self, name: str, ways: tuple[str, ...] = ()) -> Case:
        """The case that asks for it."""
        offered = tuple(
            {
                "type": "function",
                "function": {"name": tool, "parameters": {"type": "object", "properties": properties}},
            }
            for tool, properties in self.tools.items()
        )
        return Case(name=name, text=self.text, tools=offered, quoted=self.quoted, ways=ways)


def made(family: Family, budget: int, seed: int) -> list[Made]:
    """So many meanings that the family can say, or fewer, from a seed; shortest texts first."""
    found: dict[str, Made] = {}

    def enough(one: Made) -> bool:
        if len(found) < budget:
            found.setdefault(one.text, one)
        return len(found) == budget

    _search(family, enough, TRIES * budget, seed, (Phase.generate,))
    return sorted(found.values(), key=lambda one: len(one.text))


def failures(
    family: Family, kinds: Callable[[Made], list[Kind]], budget: int, seed: int
) -> Iterator[tuple[Kind, Made]]:
    """Each kind of failure of a family that a budget of meanings finds, with the smallest that shows it.

    Args:
        kinds: what is wrong with a meaning, the same each time.
    """
    known: list[Kind] = []
    while len(known) < MOST:
        first = _First(kinds, tuple(known))
        smallest = _search(family, first.shows, budget, seed, (Phase.generate, Phase.shrink))
        if smallest is None or first.kind is None:
            return
        known.append(first.kind)
        yield first.kind, smallest


class _First:
    """The first kind of failure that is not known, and whether another meaning shows it as well."""

    def __init__(self, kinds: Callable[[Made], list[Kind]], known: tuple[Kind, ...]) -> None:
        self.kind: Kind | None = None
        self._kinds = kinds
        self._known = known

    def shows(self, one: Made) -> bool:
        wrong = self._kinds(one)
        if self.kind is None:
            self.kind = next((kind for kind in wrong if kind not in self._known), None)
        return self.kind in wrong


def _search(
    family: Family, shows: Callable[[Made], bool], budget: int, seed: int, phases: Sequence[Phase]
) -> Made | None:
    """The first for which this holds, made smaller by shrinking; None: there is none among so many."""
    chosen = settings(
        max_examples=budget,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    try:
        return find(_made(family), shows, settings=chosen, random=Random(seed))
    except NoSuchExample:
        return None


@st.composite
def _made(draw: st.DrawFn, family: Family) -> Made:
    parts: list[Part] = []
    tools: dict[str, dict[str, Schema]] = {}
    if family.reasoning_parser and draw(st.booleans()):
        parts.append(Reasoning(draw(_words)))
    given = draw(st.lists(_arguments(family), max_size=len(NAMES))) if family.tool_parser else []
    speaks = draw(st.booleans())
    if speaks or not given:
        parts.append(Text(draw(_words)))
    for name, arguments in zip(NAMES, given or [[]], strict=False):
        tools[name] = {f"p{index}": schema for index, (schema, _) in enumerate(arguments)}
        if given:
            parts.append(ToolCall(name, {f"p{index}": value for index, (_, value) in enumerate(arguments)}))
    meaning = Meaning(tuple(parts))
    try:
        text = render(family.dialect, meaning)
    except DialectError:
        assume(False)
        raise
    cuts = draw(st.lists(st.integers(1, len(text.encode())), max_size=4, unique=True))
    offered = tools if family.tool_parser else {}
    return Made(meaning, offered, text, quotes(family, meaning), tuple(sorted(cuts)))


def _arguments(family: Family) -> st.SearchStrategy[list[tuple[Schema, Any]]]:
    """Each with its schema, so that they shrink together."""
    pieces = (*PIECES, *markers(family))
    one = _schema.flatmap(lambda schema: st.tuples(st.just(schema), _value(schema, pieces)))
    return st.lists(one, max_size=4)


def _object(inner: list[Schema]) -> Schema:
    return {"type": "object", "properties": {f"k{index}": one for index, one in enumerate(inner)}}


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
# blanks around a text may go, so it begins and ends with a word
_words = st.lists(st.sampled_from(PIECES), max_size=8).map(lambda said: f"So {''.join(said)} it is.")


def _value(schema: Schema, pieces: tuple[str, ...]) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "string":
            return st.lists(st.sampled_from(pieces), max_size=8).map("".join)
        case "integer":
            return st.sampled_from(NUMBERS)
        case "number":
            return st.sampled_from(FLOATS)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(_value(schema["items"], pieces), max_size=2)
    return st.fixed_dictionaries({key: _value(inner, pieces) for key, inner in schema["properties"].items()})
