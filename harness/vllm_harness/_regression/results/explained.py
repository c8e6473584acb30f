"""The failures of parser regression by known defect: the registry says which each explains."""

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
from vllm_harness._scripted.families import REAL

WITH_RUST = "0.33.0@0.32.0"
"""A server environment that carries Rust's front end."""


class FailureSelection(StrictModel):
    """A selector of an entry, with its words checked; attributes as of `FailureSelector` and `Defect`."""

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
        """The selector of an entry. Raises DefectsError, naming entry and key, where a word is unknown."""
        try:
            words = selector.model_dump(exclude_defaults=True)
            return cls.model_validate({**words, "frontends": defect.frontends})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise DefectsError(f"{defect.id}: failures: {place}: {first['msg']}") from error

    @property
    def command(self) -> str:
        """What shows it again."""
        chosen = ["--parsers", self.families[0], "--cases", self.groups[0], "--only", self.case]
        rust = ("--vllm", WITH_RUST, "--frontends", "rust") if self.frontend == "rust" else ()
        engine = ("--engine", "http", *rust) if self.served or rust else ()
        return shlex.join(["vllm-harness", "regression", *chosen, *engine])

    @property
    def frontend(self) -> Frontend:
        """The one that is requested to see it."""
        return self.frontends[0]

    def explains(self, failure: Failure) -> bool:
        """Whether a failure is one of its."""
        return failure.plain_family in self.families and self._fits(failure)

    def is_like(self, failure: Failure) -> bool:
        """Whether it names the mismatch of a failure in such a case, for other families."""
        return bool(self.mismatches) and failure.plain_family not in self.families and self._fits(failure)

    def _fits(self, failure: Failure) -> bool:
        name = unforced(failure.case) if failure.group == "forced" else failure.case
        return (
            failure.frontend in self.frontends
            and failure.group in self.groups
            and (not self.cases or any(fnmatchcase(name, case) for case in self.cases))
            and (not self.deliveries or not {failure.delivery, failure.like}.isdisjoint(self.deliveries))
            and (not self.mismatches or any(each.covers(failure.mismatch) for each in self.mismatches))
            and (not self.says or re.search(self.says, failure.text, re.DOTALL) is not None)
        )


@dataclass(frozen=True)
class ParserDefect:
    """A defect of a parser, with the failures that it explains."""

    defect: Defect
    selections: tuple[FailureSelection, ...]

    @property
    def id(self) -> str:
        """Of the entry."""
        return self.defect.id

    def explains(self, failure: Failure) -> bool:
        """Whether a failure is one of its."""
        return any(selection.explains(failure) for selection in self.selections)

    def is_like(self, failure: Failure) -> bool:
        """Whether it names the mismatch of a failure in such a case, for other families."""
        return any(selection.is_like(failure) for selection in self.selections)


@dataclass(frozen=True)
class Failure:
    """One mismatch of one case in one delivery, from one front end; parsers in process are Python's.

    `text` is what the model says in the case.
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
        """The family, on whichever tokenizer."""
        return self.family.removesuffix(REAL)

    @property
    def like(self) -> Delivery:
        """The delivery in process that its own is like."""
        return like_in_process(self.delivery)

    @property
    def alternatives(self) -> Iterator[Failure]:
        """The failure, and what is the same: a stream's with its tokens in other cuts, an error of a cost.

        A server's API process that lags behind the engine, as under load, has several tokens in one delta. An
        answer that is measured fails as others do, in the canonical cases.
        """
        yield self
        if self.delivery.api is not None and self.delivery.is_streamed:
            yield replace(self, delivery=Delivery(Chunking.RANDOM_CUTS))
        if self.group == "cost" and self.mismatch.code is MismatchCode.ERROR:
            yield from replace(self, group="canonical").alternatives


@dataclass
class ExplainedFailures:
    """A run's failures by what explains them.

    Attributes:
        counts: defect's id -> where it showed, as (environment, engine) -> how many failures.
        unexplained: (environment, engine, failure) that no defect explains.
    """

    counts: dict[str, dict[tuple[str, Engine], int]] = field(default_factory=dict)
    unexplained: list[tuple[str, Engine, Failure]] = field(default_factory=list)


def parser_defects(defects: Mapping[str, Defect]) -> tuple[ParserDefect, ...]:
    """The defects that name failures of parser regression. Raises DefectsError at an unknown word."""
    return tuple(
        ParserDefect(defect, selections_of(defect)) for defect in defects.values() if defect.failures
    )


def selections_of(defect: Defect) -> tuple[FailureSelection, ...]:
    """The selectors of an entry. Raises DefectsError at an unknown word."""
    return tuple(FailureSelection.of(defect, each) for each in defect.failures)


def explain(known: Iterable[ParserDefect], cells: Iterable[Cell]) -> ExplainedFailures:
    """Sorts the failures of cells by the defects that explain them; several may explain one."""
    families = by_family(known)
    explained = ExplainedFailures()
    for cell in cells:
        place = (cell.environment, cell.engine)
        for failure in failures_of(cell):
            ids = explaining(failure, families.get(failure.plain_family, ()))
            if not ids:
                explained.unexplained.append((*place, failure))
            for each in ids:
                counts = explained.counts.setdefault(each, {})
                counts[place] = counts.get(place, 0) + 1
    return explained


def explaining(failure: Failure, known: Iterable[ParserDefect]) -> list[str]:
    """The ids of the defects that explain a failure, or else the same with its tokens in other cuts."""
    candidates = list(known)
    for each in failure.alternatives:
        if found := [candidate.id for candidate in candidates if candidate.explains(each)]:
            return found
    return []


def known_elsewhere(
    known: Iterable[ParserDefect], failures: Sequence[Failure]
) -> list[tuple[ParserDefect, list[Failure]]]:
    """The defects of other families that are like failures, those that name cases and explain most first."""
    alike = [(each, [failure for failure in failures if each.is_like(failure)]) for each in known]
    return sorted(
        ((each, found) for each, found in alike if found),
        key=lambda pair: (not any(selection.cases for selection in pair[0].selections), -len(pair[1])),
    )


def by_family(known: Iterable[ParserDefect]) -> dict[str, list[ParserDefect]]:
    """The defects of each family."""
    found: dict[str, list[ParserDefect]] = {}
    for each in known:
        for family in each.defect.families:
            found.setdefault(family, []).append(each)
    return found


def failures_of(cell: Cell) -> Iterator[Failure]:
    """The failures of a cell, case by case."""
    for name, case in cell.cases.items():
        for delivery, mismatches in case.mismatches.items():
            for mismatch in mismatches:
                yield failure_in(cell, name, delivery, mismatch)


def failure_in(cell: Cell, name: str, delivery: Delivery, mismatch: Mismatch) -> Failure:
    """One mismatch of a case of a cell."""
    text = cell.cases[name].text
    return Failure(cell.family, cell.group, name, delivery, mismatch, cell.frontend, text)
