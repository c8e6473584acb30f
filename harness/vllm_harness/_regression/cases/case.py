"""A test case: what the model generates, what the request offers, and the expected answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Literal, get_args

from vllm_harness._exchange.delivery import DeliveryField
from vllm_harness._files.strict import StrictModel
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.meaning import Meaning

Group = Literal["canonical", "forced", "chunks", "malformed", "look-alikes", "properties", "load", "cost"]
GROUPS: tuple[Group, ...] = get_args(Group)
DEFAULT_GROUPS: tuple[Group, ...] = ("canonical", "forced", "chunks", "malformed", "look-alikes")


class Topic(StrEnum):
    """The subject of a case, shown in reports."""

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
"""A text, and the number of times it is repeated."""


class Grown(StrictModel):
    """One length of a growing answer: the text, and how many tools the request offers (None for all)."""

    runs: tuple[Run, ...]
    tools: int | None = None

    @property
    def text(self) -> str:
        """The complete text."""
        return "".join(text * count for text, count in self.runs)


class CaseInput(StrictModel):
    """What an engine needs to run a case: the text that the model generates, and the request for it.

    Attributes:
        name: unique within the family and group.
        text: the raw text, including the token that ends the turn.
        user_message: the user's message; empty if its text does not matter.
        tools: the tools that the request offers.
        tool_choice: `none`, `auto`, `required`, or the name of the function to call; None to leave it out.
        alternatives: texts to try in order if the request's grammar refuses `text`.
        deliveries: how the text arrives; empty for the group's deliveries.
        spelled_spans: (start, end) of the parts of the text that are encoded with ordinary tokens only.
        markers_spelled: whether every marker is encoded with ordinary tokens.
        truncated: whether each truncation of the text (after each token) is parsed instead of the whole text.
        call_ids: the ids of the calls if the text contains them.
        max_tokens: the token limit of the request; None for no limit.
        cpu_s: the CPU time limit for measuring the cost of one delivery; None for the engine's default.
        grown: the answer at growing lengths, shortest first, if its cost is measured.
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
        """The pieces of the text to encode separately; spelled spans are split into single characters."""
        edges = [0, *(edge for span in self.spelled_spans for edge in span), len(self.text)]
        pieces = []
        for number, (start, end) in enumerate(pairwise(edges)):
            pieces += list(self.text[start:end]) if number % 2 else [self.text[start:end]]
        return list(filter(None, pieces))


@dataclass(frozen=True)
class Expected:
    """The expected answer to a case.

    Attributes:
        meaning: what the parsers must return; None if any result will do that is the same in every delivery.
        refused: whether the request's grammar must refuse the text.
        calls_allowed: whether the request allows calls.
        functions: if `meaning` is None, the functions that may be called; empty for any.
        words: if `meaning` is None, words that an answer without calls must contain.
        values: if `meaning` is None, strings that an answer with calls must contain, in arguments or text.
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
        essential: whether slow engines also run the case.
    """

    input: CaseInput
    topic: Topic
    expected: Expected
    essential: bool = True

    @property
    def name(self) -> str:
        """The case's name, unique within the family and group."""
        return self.input.name

    @property
    def identity(self) -> list[object]:
        """Everything except vLLM that determines the result of the case, as JSON values."""
        expected = self.expected
        rules = {"refused": expected.refused, "calls_allowed": expected.calls_allowed}
        sets = [sorted(names) for names in (expected.functions, expected.words, expected.values)]
        excluded = {"max_tokens"} if self.input.cpu_s else {"max_tokens", "cpu_s"}
        return [self.input.model_dump(exclude=excluded), repr(expected.meaning), rules, *sets]


@dataclass(frozen=True)
class CaseSet:
    """One group's cases for one family; `left_out` maps each inapplicable case to the reason."""

    family: Family
    group: Group
    cases: tuple[Case, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> list[CaseInput]:
        """The inputs of the cases."""
        return [case.input for case in self.cases]

    @property
    def digest(self) -> str:
        """A digest of everything except vLLM that determines the results."""
        return short_digest([case.identity for case in self.cases])

    def only(self, names: Collection[str]) -> CaseSet:
        """Returns the case set reduced to the cases with these names; unchanged if no name is given."""
        if not names:
            return self
        cases = tuple(case for case in self.cases if case.name in names)
        left_out = {name: reason for name, reason in self.left_out.items() if name in names}
        return replace(self, cases=cases, left_out=left_out)


def short_digest(value: object) -> str:
    """Returns a digest of a JSON value as 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
