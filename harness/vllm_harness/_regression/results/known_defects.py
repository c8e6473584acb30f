"""Sorts the failures of parser regression by the known defects of the registry that explain them."""

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
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.case import DEFAULT_GROUPS, Group
from vllm_harness._regression.cases.delivery import Chunking, Delivery, DeliveryField
from vllm_harness._regression.cases.groups import unforced
from vllm_harness._regression.engines.plan import Engine, like_in_process
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.mismatches import Mismatch, MismatchCode, MismatchField
from vllm_harness._scripted.families import REAL, load_families

WITH_RUST = "0.33.0@0.32.0"
"""A server environment that has the front end in Rust."""


class FailureSelection(StrictModel):
    """A validated selector of an entry; `FailureSelector` and `Defect` document the attributes."""

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
        """Validates a selector of an entry. Raises DefectsError, which names the entry and the key."""
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
        """The front end that `command` requests."""
        return self.frontends[0]

    def explains(self, failure: Failure) -> bool:
        """Whether it selects a failure."""
        return failure.plain_family in self.families and self._fits(failure)

    def is_like(self, failure: Failure) -> bool:
        """Whether it would select a failure if it named the failure's family."""
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
    """A defect of a parser, with the selectors of the failures that it explains."""

    defect: Defect
    selections: tuple[FailureSelection, ...]

    @property
    def id(self) -> str:
        """The id of the defect entry."""
        return self.defect.id

    def explains(self, failure: Failure) -> bool:
        """Whether one of its selectors selects a failure."""
        return any(selection.explains(failure) for selection in self.selections)

    def is_like(self, failure: Failure) -> bool:
        """Whether one of its selectors would select a failure if it named the failure's family."""
        return any(selection.is_like(failure) for selection in self.selections)


@dataclass(frozen=True)
class Failure:
    """One mismatch of one case in one delivery, with one front end (Python's for parsers in process).

    `text` is what the model generates in the case.
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
        """The family's name without the suffix of its real tokenizer."""
        return self.family.removesuffix(REAL)

    @property
    def like(self) -> Delivery:
        """The delivery in process that corresponds to its delivery."""
        return like_in_process(self.delivery)

    @property
    def alternatives(self) -> Iterator[Failure]:
        """The failure, and equivalent ones in other deliveries and groups.

        An API process that lags behind the engine, as under load, joins several tokens into one delta, so a
        streamed failure over HTTP equals one with random cuts. An error while the cost of an answer is
        measured equals the same error in the canonical cases.
        """
        yield self
        if self.delivery.api is not None and self.delivery.is_streamed:
            yield replace(self, delivery=Delivery(Chunking.RANDOM_CUTS))
        if self.group == "cost" and self.mismatch.code is MismatchCode.ERROR:
            yield from replace(self, group="canonical").alternatives


@dataclass
class ExplainedFailures:
    """A run's failures, sorted by the defects that explain them.

    Attributes:
        counts: the id of a defect -> (environment, engine) -> the number of failures that it explains.
        unexplained: (environment, engine, failure) for each failure that no defect explains.
    """

    counts: dict[str, dict[tuple[str, Engine], int]] = field(default_factory=dict)
    unexplained: list[tuple[str, Engine, Failure]] = field(default_factory=list)


def parser_defects(defects: Mapping[str, Defect]) -> tuple[ParserDefect, ...]:
    """The defects that name failures of parser regression. Raises DefectsError if a selector is invalid."""
    return tuple(
        ParserDefect(defect, selections_of(defect)) for defect in defects.values() if defect.failures
    )


def selections_of(defect: Defect) -> tuple[FailureSelection, ...]:
    """The selectors of an entry. Raises DefectsError if one is invalid."""
    return tuple(FailureSelection.of(defect, selector) for selector in defect.failures)


def explain(known: Iterable[ParserDefect], cells: Iterable[Cell]) -> ExplainedFailures:
    """Sorts the failures of cells by the defects that explain them; several may explain one."""
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
    """The names of the failed cases whose mismatches are all explained by defects; see `by_family`."""
    failed = {name for name, case in cell.cases.items() if case.mismatches}
    unexplained = {
        failure.case
        for failure in failures_of(cell)
        if not explaining_ids(failure, known.get(failure.plain_family, ()))
    }
    return failed - unexplained


def explaining_ids(failure: Failure, known: Iterable[ParserDefect]) -> list[str]:
    """The ids of the defects that explain a failure, or otherwise the first of its equivalents."""
    candidates = list(known)
    for alternative in failure.alternatives:
        if ids := [candidate.id for candidate in candidates if candidate.explains(alternative)]:
            return ids
    return []


def known_elsewhere(
    known: Iterable[ParserDefect], failures: Sequence[Failure]
) -> list[tuple[ParserDefect, list[Failure]]]:
    """The defects of other families with the same mismatches as failures, each with these failures.

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
    """The defects of each family."""
    defects: dict[str, list[ParserDefect]] = {}
    for defect in known:
        for family in defect.defect.families:
            defects.setdefault(family, []).append(defect)
    return defects


def failures_of(cell: Cell) -> Iterator[Failure]:
    """The failures of a cell, case by case."""
    for name, case in cell.cases.items():
        for delivery, mismatches in case.mismatches.items():
            for mismatch in mismatches:
                yield failure_in(cell, name, delivery, mismatch)


def failure_in(cell: Cell, name: str, delivery: Delivery, mismatch: Mismatch) -> Failure:
    """The failure for one mismatch of a case of a cell."""
    text = cell.cases[name].text
    return Failure(cell.family, cell.group, name, delivery, mismatch, cell.frontend, text)
