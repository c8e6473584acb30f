"""Matches failures in parser regression with the known defects in the registry that explain them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vllm_harness._defects.entry import Defect
from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._regression.results.selections import Failure, FailureSelection, selections_of
from vllm_harness._scripted.families import load_families


@dataclass(frozen=True)
class ParserDefect:
    """A parser defect, with the selectors of the failures that it explains."""

    defect: Defect
    selections: tuple[FailureSelection, ...]

    @property
    def id(self) -> str:
        """The id of the defect entry."""
        return self.defect.id

    def explains(self, failure: Failure) -> bool:
        """Whether one of the selectors matches a failure."""
        return any(selection.explains(failure) for selection in self.selections)

    def is_like(self, failure: Failure) -> bool:
        """Whether one of the selectors would match a failure if it listed the failure's family."""
        return any(selection.is_like(failure) for selection in self.selections)


@dataclass
class ExplainedFailures:
    """A run's failures, counted by the defects that explain them.

    Attributes:
        counts: defect id -> (environment, engine) -> the number of failures that the defect explains.
        unexplained: (environment, engine, failure) for each failure that no defect explains.
    """

    counts: dict[str, dict[tuple[str, Engine], int]] = field(default_factory=dict)
    unexplained: list[tuple[str, Engine, Failure]] = field(default_factory=list)


def parser_defects(defects: Mapping[str, Defect]) -> tuple[ParserDefect, ...]:
    """Returns the defects with failure selectors. Raises DefectsError if a selector is invalid."""
    return tuple(
        ParserDefect(defect, selections_of(defect)) for defect in defects.values() if defect.failures
    )


def explain(known: Iterable[ParserDefect], cells: Iterable[Cell]) -> ExplainedFailures:
    """Counts the failures in cells by the defects that explain them; several defects may explain one."""
    families = by_family(known)
    explained = ExplainedFailures()
    for cell in cells:
        place = (cell.environment, cell.engine)
        for failure in failures_of(cell):
            ids = explaining_ids(failure, families.get(failure.plain_family, ()))
            if not ids:
                explained.unexplained.append((*place, failure))
            for defect_id in ids:
                counts = explained.counts.setdefault(defect_id, {})
                counts[place] = counts.get(place, 0) + 1
    return explained


def known_cases(cell: Cell, known: Mapping[str, Sequence[ParserDefect]]) -> set[str]:
    """Returns the failed cases whose mismatches are all explained by `known` (made by `by_family`)."""
    failed = {name for name, case in cell.cases.items() if case.mismatches}
    unexplained = {
        failure.case
        for failure in failures_of(cell)
        if not explaining_ids(failure, known.get(failure.plain_family, ()))
    }
    return failed - unexplained


def explaining_ids(failure: Failure, known: Iterable[ParserDefect]) -> list[str]:
    """Returns the ids of the defects that explain a failure, or else its first explained equivalent."""
    candidates = list(known)
    for alternative in failure.alternatives:
        if ids := [candidate.id for candidate in candidates if candidate.explains(alternative)]:
            return ids
    return []


def known_elsewhere(
    known: Iterable[ParserDefect], failures: Sequence[Failure]
) -> list[tuple[ParserDefect, list[Failure]]]:
    """Returns defects of other families that would explain failures, each with those failures.

    Defects of a parser that the failing families share come first, then those whose selectors name cases,
    then those with the most failures.
    """
    parser_of = {name: each.tool_parser or each.reasoning_parser for name, each in load_families().items()}

    def rank(pair: tuple[ParserDefect, list[Failure]]) -> tuple[bool, bool, int]:
        defect, alike = pair
        parsers = {parser_of.get(failure.plain_family) for failure in alike} - {None}
        shared = any(parser_of.get(family) in parsers for family in defect.defect.families)
        return not shared, not any(selection.cases for selection in defect.selections), -len(alike)

    pairs = [(defect, [failure for failure in failures if defect.is_like(failure)]) for defect in known]
    return sorted(((defect, alike) for defect, alike in pairs if alike), key=rank)


def by_family(known: Iterable[ParserDefect]) -> dict[str, list[ParserDefect]]:
    """Groups defects by parser family."""
    defects: dict[str, list[ParserDefect]] = {}
    for defect in known:
        for family in defect.defect.families:
            defects.setdefault(family, []).append(defect)
    return defects


def failures_of(cell: Cell) -> Iterator[Failure]:
    """Yields the failures in a cell, case by case."""
    for name, case in cell.cases.items():
        for delivery, mismatches in case.mismatches.items():
            for mismatch in mismatches:
                yield failure_in(cell, name, delivery, mismatch)


def failure_in(cell: Cell, name: str, delivery: Delivery, mismatch: Mismatch) -> Failure:
    """Returns the failure for one mismatch of a case in a cell."""
    text = cell.cases[name].text
    return Failure(cell.family, cell.group, name, delivery, mismatch, cell.frontend, text)
