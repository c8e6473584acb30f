"""A parser's defect on a real server: the smallest case of parser regression that shows it, over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from vllm_harness.defects.entry import Defect
from vllm_harness.environments.spec import Environment
from vllm_harness.regression.cases.case import Case, CaseInput, Group
from vllm_harness.regression.cases.delivery import Delivery, deliveries
from vllm_harness.regression.cases.groups import case_set
from vllm_harness.regression.cases.meanings import load_meanings
from vllm_harness.regression.engines.answer import Answer
from vllm_harness.regression.engines.over_http import request_all
from vllm_harness.regression.engines.plan import like_in_process
from vllm_harness.regression.results.explained import Failure, FailureSelection, ParserDefect
from vllm_harness.regression.results.judge import judge, meaning_mismatches
from vllm_harness.repro.verdict import Reproduction
from vllm_harness.scripted.families import Family, load_families

WHOLE, *_ = CANDIDATES = deliveries(
    "chat:whole chat:tokens_1 responses:whole responses:tokens_1 chat:held_back "
    "chat:all_with_end chat:tokens_3 chat:tokens_2 chat:tokens_5 chat:tokens_7"
)
"""Deliveries that a server has, the cheapest first: the last five want a server of their own."""


@dataclass(frozen=True)
class ServedCase:
    """What is requested for a defect.

    Attributes:
        selection: the failures by which the defect shows.
        family: whose server is requested.
        group: of the case.
        case: with the deliveries to request, and a name that is unique beside the cases of other groups.
        name: the case's own.
    """

    selection: FailureSelection
    family: Family
    group: Group
    case: Case
    name: str

    def verdict_of(self, answers: Sequence[Answer]) -> Reproduction:
        """What the answers to the case say."""
        documents = [answer.model_dump(mode="json", exclude_defaults=True) for answer in answers]
        failures = [
            Failure(self.family.name, self.group, self.name, answer.delivery, mismatch)
            for answer, mismatches in judge(self.case, answers)
            for mismatch in mismatches
            if answer.delivery
        ]
        if any(self.selection.explains(each) for failure in failures for each in failure.alternatives):
            return Reproduction("reproduced", answers=documents)
        if failures:
            found = ", ".join(dict.fromkeys(f"{each.delivery} {each.mismatch}" for each in failures))
            return Reproduction("other failure", found, documents)
        return Reproduction("fixed", answers=documents)


def served_case(defect: ParserDefect) -> ServedCase | None:
    """The first of a defect's cases that a server can serve; None: they are of tokens or cuts alone."""
    for selection in defect.selections:
        for group in selection.groups:
            for case in _cases(group, selection.families[0]):
                if case.name == selection.case and not (case.input.markers_spelled or case.input.truncated):
                    return _served(selection, group, case)
    return None


def reproduce_on(
    environment: Environment, cases: Sequence[tuple[Defect, ServedCase]]
) -> Iterator[tuple[Defect, Reproduction]]:
    """Requests the cases of one family's defects.

    Raises:
        StartupError: a server does not start.
    """
    inputs = {served.case.name: served.case.input for _, served in cases}
    meanings = {served.case.name: served.case.expected.meaning for _, served in cases}

    def mismatches(answer: Answer) -> bool:
        meaning = meanings[str(answer.case)]
        return meaning is not None and bool(meaning_mismatches(meaning, answer))

    family = cases[0][1].family
    merged = [_merged(each.case.input for _, each in cases if each.case.name == name) for name in inputs]
    answers = request_all(environment, family, merged, mismatches).answers
    for defect, served in cases:
        wanted = served.case.input.deliveries
        own = [each for each in answers if each.case == served.case.name and each.delivery in wanted]
        yield defect, served.verdict_of(sorted(own, key=lambda each: wanted.index(_delivery(each))))


def _merged(inputs: Iterable[CaseInput]) -> CaseInput:
    """One input of a case with the deliveries of all."""
    first, *others = inputs
    every = dict.fromkeys((*first.deliveries, *(each for other in others for each in other.deliveries)))
    return first.model_copy(update={"deliveries": tuple(every)})


def _delivery(answer: Answer) -> Delivery:
    assert answer.delivery is not None
    return answer.delivery


def _served(selection: FailureSelection, group: Group, case: Case) -> ServedCase:
    name = f"{case.name} ({group})"
    input_ = case.input.model_copy(update={"name": name, "deliveries": _deliveries(selection, case)})
    family = load_families()[selection.families[0]]
    return ServedCase(selection, family, group, replace(case, input=input_), case.name)


def _deliveries(selection: FailureSelection, case: Case) -> tuple[Delivery, ...]:
    """Those that show it, as few as there may be; first that with which others are compared."""
    fitting = [
        each
        for each in CANDIDATES
        if not selection.deliveries or not {each, like_in_process(each)}.isdisjoint(selection.deliveries)
    ]
    streamed = [each for each in fitting if each.is_streamed]
    whole = [each for each in fitting if not each.is_streamed]
    chosen = [*whole[:1], *streamed[:1]] or [*CANDIDATES]
    first = () if case.expected.meaning or case.expected.refused else (WHOLE,)
    return tuple(dict.fromkeys((*first, *chosen)))


@cache
def _cases(group: Group, family: str) -> tuple[Case, ...]:
    return case_set(group, load_families()[family], load_meanings()).cases
