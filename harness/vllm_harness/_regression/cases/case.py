"""A test case: what the model says, what the request offers, and what is expected of the answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Literal, get_args

from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.delivery import DeliveryField
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.meaning import Meaning

Group = Literal["canonical", "forced", "chunks", "malformed", "look-alikes", "properties", "load", "cost"]
GROUPS: tuple[Group, ...] = get_args(Group)
DEFAULT_GROUPS: tuple[Group, ...] = ("canonical", "forced", "chunks", "malformed", "look-alikes")


class Topic(StrEnum):
    """What a case is about, for reports."""

    PLAIN = "plain"
    CALLS = "calls"
    ARGUMENTS = "arguments"
    MIXED = "mixed"
    LOOKS = "looks"
    FOUND = "found"
    PROMPT = "prompt"
    SPECIAL_TOKEN = "special_token"
    MARKER_IN_STRING = "marker_in_string"
    REQUIRED = "required"
    NAMED = "named"
    STRICT = "strict"
    FORBIDDEN = "forbidden"
    BARRED = "barred"
    SEGMENTATION = "segmentation"
    MARKERS_SPELLED = "markers_spelled"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    LOOK_ALIKE = "look_alike"
    PROPERTY = "property"
    LOAD = "load"
    COST = "cost"
    LEFT_OUT = "left_out"


Run = tuple[str, int]
"""A text, and how often it is repeated."""


class Grown(StrictModel):
    """A growing answer at one of its lengths.

    Attributes:
        runs: the text that the model says.
        tools: how many of the case's tools are offered; None: all.
    """

    runs: tuple[Run, ...]
    tools: int | None = None

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(text * count for text, count in self.runs)


class CaseInput(StrictModel):
    """What an engine needs of a case: the text that the model says, and the request for it.

    Attributes:
        name: unique within its family and group.
        text: raw text, up to and with the token that ends the turn.
        user_message: what the user says; empty: a text that does not matter.
        tools: offered with the request; none: no tools.
        tool_choice: `none`, `auto`, `required`, or the name of the function to call; None: not given.
        alternatives: texts in place of `text` where the request's grammar does not accept it: the first of
            these that it does accept.
        deliveries: how the text arrives; empty: as its group has it.
        spelled_spans: where the text is spelled with ordinary tokens, whatever it looks like: from, to.
        markers_spelled: whether every marker is spelled with ordinary tokens.
        truncated: whether it is parsed truncated after each of its tokens, in place of once to its end.
        call_ids: what its calls are identified by, where the text says it.
        max_tokens: of a request for it; None: no limit.
        cpu_s: CPU time that measuring its cost may take in one delivery; None: the engine's own.
        grown: the lengths of an answer that grows, the shortest first: its cost is measured, not its answer.
    """

    name: str
    text: str
    user_message: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | None = None
    alternatives: tuple[str, ...] = ()
    deliveries: tuple[DeliveryField, ...] = ()
    spelled_spans: tuple[tuple[int, int], ...] = ()
    markers_spelled: bool = False
    truncated: bool = False
    call_ids: tuple[str, ...] = ()
    max_tokens: int | None = None
    cpu_s: float | None = None
    grown: tuple[Grown, ...] = ()

    @property
    def pieces(self) -> list[str]:
        """The text in the pieces that are encoded each by itself: what is spelled, a letter at a time."""
        edges = [0, *(edge for span in self.spelled_spans for edge in span), len(self.text)]
        pieces = []
        for number, (start, end) in enumerate(pairwise(edges)):
            pieces += list(self.text[start:end]) if number % 2 else [self.text[start:end]]
        return list(filter(None, pieces))


@dataclass(frozen=True)
class Expected:
    """What is expected of the answer to a case.

    Attributes:
        meaning: what must come back; None: any meaning, the same in every delivery.
        refused: whether the request's grammar must keep the model from saying the text.
        calls_allowed: whether the request allows calls.
        functions: the names that calls may have where there is no meaning; none: any.
        words: what an answer without calls must hold where there is no meaning.
        values: what an answer with calls must hold there, in its arguments or beside them.
    """

    meaning: Meaning | None = None
    refused: bool = False
    calls_allowed: bool = True
    functions: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Case:
    """A test case.

    Attributes:
        input: what an engine needs of it.
        topic: what it is about.
        expected: of the answer.
        essential: whether an engine runs it that has no time for all cases.
    """

    input: CaseInput
    topic: Topic
    expected: Expected
    essential: bool = True

    @property
    def name(self) -> str:
        """Unique within its family and group."""
        return self.input.name

    @property
    def identity(self) -> list[object]:
        """All that decides its result, but for vLLM, as JSON."""
        expected = self.expected
        rules = {"refused": expected.refused, "calls_allowed": expected.calls_allowed}
        sets = [sorted(names) for names in (expected.functions, expected.words, expected.values)]
        excluded = {"max_tokens"} if self.input.cpu_s else {"max_tokens", "cpu_s"}
        return [self.input.model_dump(exclude=excluded), repr(expected.meaning), rules, *sets]


@dataclass(frozen=True)
class CaseSet:
    """The cases of one group for one family.

    Attributes:
        family: whose parsers are tested.
        group: of the cases.
        cases: in order.
        left_out: why the family has no others: name -> reason.
    """

    family: Family
    group: Group
    cases: tuple[Case, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> list[CaseInput]:
        """The inputs of its cases."""
        return [case.input for case in self.cases]

    @property
    def digest(self) -> str:
        """Differs where anything differs that decides a result, but for vLLM."""
        return short_digest([case.identity for case in self.cases])

    def only(self, names: Collection[str]) -> CaseSet:
        """The cases of these names alone; all where no name is given."""
        if not names:
            return self
        cases = tuple(case for case in self.cases if case.name in names)
        left_out = {name: reason for name, reason in self.left_out.items() if name in names}
        return replace(self, cases=cases, left_out=left_out)


def short_digest(value: object) -> str:
    """16 letters that tell one JSON value from another."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
