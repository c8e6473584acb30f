"""Chooses what to serve over HTTP, and requests regressed cases again by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_harness._defects.registry import load_defects
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import HarnessError
from vllm_harness._regression.cases.case import CaseSet
from vllm_harness._regression.engines.over_http import request_all, served_by
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.compare import PARSERS_ARE_MADE, CaseChange
from vllm_harness._regression.results.known_defects import by_family, known_cases, parser_defects
from vllm_harness._scripted.families import Family, entry_of
from vllm_harness.extras.review.second_try import SecondTry, failure_of
from vllm_harness.extras.review.verdict import Message, ShownFailure


def covering(families: Sequence[Family]) -> list[Family]:
    """The first families that together have every tool parser and every reasoning parser of all."""
    seen: set[tuple[str, str | None]] = set()
    chosen = []
    for family in families:
        parsers = {("tool", family.tool_parser), ("reasoning", family.reasoning_parser)}
        if not parsers <= seen:
            seen |= parsers
            chosen.append(family)
    return chosen


def wrong_cases(case_sets: Sequence[CaseSet], cells: Sequence[Cell], version: str) -> Iterator[CaseSet]:
    """The wrong cases that no known defect of a version of vLLM explains.

    If the server of a family does not start, this is its first case.
    """
    defects = {name: each for name, each in load_defects().items() if each.holds_for(version)}
    known = by_family(parser_defects(defects))
    by_place = {(cell.family, cell.group): cell for cell in cells}
    for cases in case_sets:
        cell = by_place.get((cases.family.name, cases.group))
        if cell is None:
            continue
        failed = {name for name, case in cell.cases.items() if case.mismatches}
        names = failed - known_cases(cell, known)
        if cell.start_error:
            names = {cases.cases[0].name}
        if names:
            yield cases.only(names)


def requested_again(
    changed: Sequence[CaseChange], case_sets: Sequence[CaseSet], head: VllmUnderTest
) -> SecondTry:
    """Requests regressed cases again from a new server, one family after the other.

    Args:
        changed: the cases that regressed.
        case_sets: the case sets that contain them.
        head: the vLLM after the change.
    """
    by_case = {(change.family, change.group, change.case): change for change in changed}
    failures: list[ShownFailure] = []
    flaky: list[str] = []
    for cases in case_sets:
        place = (cases.family.name, cases.group)
        names = {name for family, group, name in by_case if (family, group) == place}
        if not names:
            continue
        chosen = cases.only(names)
        try:
            with served_by(entry_of(cases.family), lane="scripted", vllm=head.environment) as server:
                answers = request_all(server, cases.family, chosen.inputs)
        except HarnessError as error:
            failures.append(not_started(error.message, cases.family.name))
            continue
        flaky += [f"{', '.join(place)} over HTTP: the server starts"] if PARSERS_ARE_MADE in names else []
        for case in chosen.cases:
            own = [answer for answer in answers if answer.case == case.name]
            known = by_case[(*place, case.name)].before
            again = failure_of(chosen, case, own, known, head.spec, "http")
            failures += [again] if again else []
            flaky += [] if again else [f"{', '.join(place)} over HTTP, {case.name}"]
    return SecondTry(tuple(failures), tuple(flaky))


def not_started(message: str, family: str) -> ShownFailure:
    """Describes parsers or a server that do not start after the change, and did before it."""
    return ShownFailure(
        family=family,
        group="all",
        case="vLLM runs",
        delivery="",
        mismatch="parsers_not_made",
        title="vLLM does not run after the change, and did before it",
        severity="error",
        actual=Message(error=message),
    )
