"""Matches failures in parser regression with the known defects in the registry that explain them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from pydantic import Field, ValidationError

from vllm_harness._configuration.model_entries import Frontend
from vllm_harness._defects.entry import Defect, FailureSelector
from vllm_harness._defects.registry import DefectsError
from vllm_harness._exchange.delivery import Delivery, DeliveryField
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.case import DEFAULT_GROUPS, Group
from vllm_harness._regression.cases.groups import unforced
from vllm_harness._regression.engines.plan import Engine, like_in_process
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.mismatches import Mismatch, MismatchCode, MismatchField
from vllm_harness._scripted.families import REAL, load_families

WITH_RUST = "0.33.0@0.32.0"
"""A server environment that includes the Rust front end."""


class FailureSelection(StrictModel):
    """A validated failure selector from a defect entry; see `FailureSelector` and `Defect` for the fields."""

    families: tuple[str, ...]
    case: str
    groups: tuple[Group, ...] = Field(default=(*DEFAULT_GROUPS, "load"), min_length=1)
    cases: tuple[str, ...] = ()
    deliveries: tuple[DeliveryField, ...] = ()
    mismatches: tuple[MismatchField, ...] = ()
    says: str = ""
    served: bool = False
    frontends: tuple[Frontend, ...] = ("python",)

    @classmethod
    def of(cls, defect: Defect, selector: FailureSelector) -> FailureSelection:
        """Validates a selector from an entry. Raises DefectsError, which names the entry and the key."""
        try:
            fields = selector.model_dump(exclude_defaults=True)
            return cls.model_validate({**fields, "frontends": defect.frontends})
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise DefectsError(f"{defect.id}: failures: {key}: {first['msg']}") from error

    @property
    def command(self) -> str:
        """The command that reproduces the failure."""
        options = ["--parsers", self.families[0], "--cases", self.groups[0], "--only", self.case]
        rust = ("--vllm", WITH_RUST, "--frontends", "rust") if self.frontend == "rust" else ()
        engine = ("--engine", "http", *rust) if self.served or rust else ()
        return shlex.join(["vllm-harness", "regression", *options, *engine])

    @property
    def frontend(self) -> Frontend:
        """The front end that `command` uses."""
        return self.frontends[0]

    def explains(self, failure: Failure) -> bool:
        """Whether the selector matches a failure."""
        return failure.plain_family in self.families and self._fits(failure)

    def is_like(self, failure: Failure) -> bool:
        """Whether the selector would match a failure if it listed the failure's family."""
        return bool(self.mismatches) and failure.plain_family not in self.families and self._fits(failure)

    def _fits(self, failure: Failure) -> bool:
        name = unforced(failure.case) if failure.group == "forced" else failure.case
        return (
            failure.frontend in self.frontends
            and failure.group in self.groups
            and (not self.cases or any(fnmatchcase(name, case) for case in self.cases))
            and (not self.deliveries or not {failure.delivery, failure.like}.isdisjoint(self.deliveries))
            and (not self.mismatches or any(known.covers(failure.mismatch) for known in self.mismatches))
            and (not self.says or re.search(self.says, failure.text, re.DOTALL) is not None)
        )


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


@dataclass(frozen=True)
class Failure:
    """One mismatch of one case in one delivery, with one front end (`python` for parsers in process).

    `text` is the text that the model generates in the case.
    """

    family: str
    group: Group
    case: str
    delivery: Delivery
    mismatch: Mismatch
    frontend: Frontend = "python"
    text: str = field(default="", repr=False, compare=False)

    @property
    def plain_family(self) -> str:
        """The family's name without the suffix for a real tokenizer."""
        return self.family.removesuffix(REAL)

    @property
    def like(self) -> Delivery:
        """The in-process delivery that corresponds to the failure's delivery."""
        return like_in_process(self.delivery)

    @property
    def alternatives(self) -> Iterator[Failure]:
        """The failure, and equivalent failures in other deliveries and groups.

        An error while the cost of an answer is measured is equivalent to the same error in a canonical case.
        """
        yield self
        if self.group == "cost" and self.mismatch.code is MismatchCode.ERROR:
            yield from replace(self, group="canonical").alternatives


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


def selections_of(defect: Defect) -> tuple[FailureSelection, ...]:
    """Returns the selectors in a defect entry. Raises DefectsError if a selector is invalid."""
    return tuple(FailureSelection.of(defect, selector) for selector in defect.failures)


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
