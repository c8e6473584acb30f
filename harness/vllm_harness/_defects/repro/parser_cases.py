"""Reproduces a parser's defect on a real server with the smallest test case that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from vllm_harness._configuration.model_entries import Frontend, ModelEntry
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.verdict import Reproduction, Sign, reproduction_of
from vllm_harness._environments.spec import Environment
from vllm_harness._exchange.delivery import Api, Chunking, Delivery, deliveries, like_in_process
from vllm_harness._protocol.core.events import Json
from vllm_harness._regression.cases.case import Case, CaseInput, Group
from vllm_harness._regression.cases.groups import case_set
from vllm_harness._regression.cases.meanings import load_meanings, marker_tokens
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._regression.engines.over_http import request_all, served_by
from vllm_harness._regression.results.judge import judge
from vllm_harness._regression.results.mismatches import Mismatch, MismatchCode
from vllm_harness._regression.results.selections import Failure, FailureSelection, selections_of
from vllm_harness._scripted.families import Family, entry_of, load_families
from vllm_harness._server.progress import StartProgress

WHOLE, *_ = CANDIDATES = deliveries(
    "chat:whole chat:tokens_1 responses:whole responses:tokens_1 chat:held_back "
    "chat:all_with_end chat:tokens_3 chat:tokens_2 chat:tokens_5 chat:tokens_7"
)
"""The deliveries over HTTP, those first that show most defects."""
SERVER_ERRORS = {"http_500", "error_event", "ChunkedEncodingError"}
"""The errors that an exception in a parser causes over HTTP."""
CUTS = 40
"""The approximate number of lengths to which a text is truncated."""
MOST_CUTS = 150
"""The largest number of tokens after which a text is cut into two chunks."""


@dataclass(frozen=True)
class ServedCase:
    """The requests for a defect of a parser.

    Attributes:
        defect: the entry.
        selection: the failures that show the defect.
        family: the family whose server answers.
        group: the group of the test case.
        name: the name of the test case.
        cases: the test case with the deliveries to request and a name that is unique over all groups; several
            copies if the text is truncated to several lengths.
    """

    defect: Defect
    selection: FailureSelection
    family: Family
    group: Group
    name: str
    cases: tuple[Case, ...]

    @property
    def place(self) -> str:
        """The name of the server that it needs."""
        return f"family {self.family.name}{' rust' if self.frontend == 'rust' else ''}"

    @property
    def frontend(self) -> Frontend:
        """The HTTP front end that answers."""
        return self.selection.frontend

    @property
    def entry(self) -> ModelEntry:
        """The model entry of the family's stand-in."""
        return entry_of(self.family)

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """The deliveries to request, in order."""
        return self.cases[0].input.deliveries

    def in_more_deliveries(self) -> ServedCase:
        """Returns a copy with every delivery in which the defect may show."""
        changes = {"deliveries": _with_first(_fitting(self.selection, self.cases[0]), self.cases[0])}
        return replace(self, cases=tuple(_with_input(case, changes) for case in self.cases))

    def verdict_of(self, answers: Sequence[CaseAnswer]) -> Reproduction:
        """Derives the verdict from the answers to the test cases."""
        return reproduction_of(self._signs(answers), documents(answers[: len(self.deliveries)]))

    def _signs(self, answers: Sequence[CaseAnswer]) -> Iterator[Sign]:
        fitting = _fitting(self.selection, self.cases[0])
        for case in self.cases:
            own = [answer for answer in answers if answer.case == case.name]
            own.sort(key=lambda answer: self.deliveries.index(_delivery(answer)))
            for answer, mismatches in judge(case, own):
                delivery = _delivery(answer)
                yield Sign(
                    shows=any(self._is_shown_by(delivery, each) for each in mismatches),
                    is_right=not mismatches and delivery in fitting,
                    faults=tuple(f"{delivery} {each}" for each in mismatches),
                    case=case.name,
                    delivery=delivery.code,
                    answers=tuple(documents(own)),
                )

    @staticmethod
    def reproduce(
        alike: Sequence[ServedCase], environment: Environment, progress: StartProgress
    ) -> Iterator[tuple[Defect, Reproduction]]:
        """Requests the test cases of a family; repeats those that show no defect in more deliveries."""
        results = _requested(environment, alike)
        hidden = [served for served in alike if results[served.defect.id].verdict != "reproduced"]
        if hidden:
            results |= _requested(environment, [served.in_more_deliveries() for served in hidden])
        yield from ((served.defect, results[served.defect.id]) for served in alike)

    def _is_shown_by(self, delivery: Delivery, mismatch: Mismatch) -> bool:
        """Whether the defect explains a mismatch; it explains errors only if its entry names an error."""
        if mismatch.code is not MismatchCode.ERROR:
            return self._explains(delivery, mismatch)
        named = [each for each in self.selection.mismatches if each.code is MismatchCode.ERROR]
        if mismatch.detail in SERVER_ERRORS:
            return any(self._explains(delivery, each) for each in named)
        return bool(named) and self._explains(delivery, mismatch)

    def _explains(self, delivery: Delivery, mismatch: Mismatch) -> bool:
        place = (self.family.name, self.group, self.name, delivery)
        failure = Failure(*place, mismatch, self.selection.frontend, self.cases[0].input.text)
        return any(self.selection.explains(each) for each in failure.alternatives)


def served_case(defect: Defect) -> ServedCase | None:
    """Makes the requests for a defect; None if its entry names no test case outside of the group `cost`."""
    for selection in selections_of(defect):
        for group in selection.groups:
            for case in () if group == "cost" else cases_of(group, selection.families[0]):
                if case.name == selection.case:
                    return _served(defect, selection, group, case)
    return None


def _requested(environment: Environment, alike: Sequence[ServedCase]) -> dict[str, Reproduction]:
    """Requests the test cases that share a server; returns the results by defect id."""
    every = [case for served in alike for case in served.cases]
    case_names = dict.fromkeys(case.name for case in every)
    merged = [_merged(case.input for case in every if case.name == name) for name in case_names]
    family, frontend = alike[0].family, alike[0].frontend
    with served_by(entry_of(family), lane="scripted", vllm=environment, frontend=frontend) as server:
        answers = request_all(server, family, merged)
    results = {}
    for served in alike:
        names = {case.name for case in served.cases}
        own = [each for each in answers if each.case in names and each.delivery in served.deliveries]
        results[served.defect.id] = served.verdict_of(own)
    return results


def _merged(inputs: Iterable[CaseInput]) -> CaseInput:
    """Merges the inputs of a test case into one with all deliveries."""
    first, *others = inputs
    every = dict.fromkeys((*first.deliveries, *(each for other in others for each in other.deliveries)))
    return first.model_copy(update={"deliveries": tuple(every)})


def _delivery(answer: CaseAnswer) -> Delivery:
    assert answer.delivery is not None
    return answer.delivery


def documents(answers: Iterable[CaseAnswer]) -> list[Json]:
    """Converts answers to JSON, as a `Reproduction` stores them."""
    return [answer.model_dump(mode="json", exclude_defaults=True) for answer in answers]


def _served(defect: Defect, selection: FailureSelection, group: Group, case: Case) -> ServedCase:
    family = load_families()[selection.families[0]]
    changes: dict[str, Any] = {
        "name": f"{case.name} ({group})",
        "deliveries": _deliveries(selection, case),
        "truncated": False,
    }
    if case.input.markers_spelled:
        changes |= {"markers_spelled": False, "spelled_spans": _marker_spans(case.input.text, family)}
    served = _with_input(case, changes)
    cases = _truncated(served) if case.input.truncated else (served,)
    return ServedCase(defect, selection, family, group, case.name, cases)


def _marker_spans(text: str, family: Family) -> tuple[tuple[int, int], ...]:
    """Finds the spans of the markers in a text that are one token each."""
    longest_first = sorted(marker_tokens(family), key=len, reverse=True)
    if not longest_first:
        return ()
    return tuple(match.span() for match in re.finditer("|".join(map(re.escape, longest_first)), text))


def _truncated(case: Case) -> tuple[Case, ...]:
    """Copies a test case with evenly spaced token limits; a token has at least one character."""
    length = len(case.input.text)
    limits = range(1, length, max(1, length // CUTS))
    changes = ({"name": f"{case.name}, {limit} tokens", "max_tokens": limit} for limit in limits)
    return tuple(_with_input(case, each) for each in changes)


def _with_input(case: Case, changes: Mapping[str, object]) -> Case:
    return replace(case, input=case.input.model_copy(update=changes))


def _deliveries(selection: FailureSelection, case: Case) -> tuple[Delivery, ...]:
    """Chooses the cheapest delivery of each kind that may show the defect."""
    fitting = _fitting(selection, case)
    streamed = [each for each in fitting if each.is_streamed]
    whole = [each for each in fitting if not each.is_streamed]
    return _with_first([*whole[:1], *streamed[:1]], case)


def _fitting(selection: FailureSelection, case: Case) -> list[Delivery]:
    """Lists the deliveries over HTTP that may show a defect; all of them if none matches its entry."""
    cuts: list[Delivery] = []
    if any(each.shape is Chunking.EVERY_CUT for each in selection.deliveries):
        most = min(len(case.input.text), MOST_CUTS)  # a token has at least one character
        cuts = [Delivery(Chunking.CUT_AT, cuts=(place,), api=Api.CHAT) for place in range(1, most)]
    fitting = [
        each
        for each in CANDIDATES
        if (each.api is Api.CHAT or selection.frontend == "python")
        and (not selection.deliveries or not {each, like_in_process(each)}.isdisjoint(selection.deliveries))
    ]
    return [*fitting, *cuts] or [*CANDIDATES]


def _with_first(chosen: Iterable[Delivery], case: Case) -> tuple[Delivery, ...]:
    """Adds the delivery that the others are compared with, if the test case has no expected meaning."""
    first = () if case.expected.meaning or case.expected.refused else (WHOLE,)
    return tuple(dict.fromkeys((*first, *chosen)))


@cache
def cases_of(group: Group, family: str) -> tuple[Case, ...]:
    """Makes the test cases of a group for a family."""
    return case_set(group, load_families()[family], load_meanings()).cases
