"""What works where: the cells of runs by version, family and feature, with what explains failures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from packaging.version import InvalidVersion, Version

from vllm_harness._configuration.model_entries import Frontend
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.severity import severity_of
from vllm_harness._errors import UsageError
from vllm_harness._regression.cases.case import Group
from vllm_harness._regression.cases.delivery import Delivery
from vllm_harness._regression.results.cells import CaseResult, CaseVerdict, Cell
from vllm_harness._regression.results.known_defects import (
    Failure,
    ParserDefect,
    by_family,
    explaining_ids,
    failure_in,
    parser_defects,
)
from vllm_harness._scripted.families import REAL
from vllm_harness.extras.site.features import Feature, feature_of

_RELEASE = re.compile(r"(?P<version>\d+(?:\.\d+)+\w*)(?:@[\w.]+)?(?:\+rust)?")


class FeatureState(StrEnum):
    """Whether a feature can be trusted."""

    WORKS = "works"
    MINOR = "minor"
    """Every failure is a difference that the contract leaves open, a missing feature, or a wait."""
    BROKEN = "broken"
    UNMEASURED = "unmeasured"
    NO_PARSER = "no parser"


@dataclass(frozen=True)
class Column:
    """A release of vLLM with one of its front ends.

    Attributes:
        version: such as `0.32.0`.
        frontend: that answers, or whose parsers are driven.
    """

    version: str
    frontend: Frontend = "python"

    @property
    def label(self) -> str:
        """As a heading."""
        return self.version if self.frontend == "python" else f"{self.version} Rust"

    @property
    def anchor(self) -> str:
        """Of its part of a family's page, a permanent one."""
        return f"v{self.version}" if self.frontend == "python" else f"v{self.version}-rust"

    @property
    def order(self) -> tuple[Version, str]:
        """The oldest first."""
        return Version(self.version), self.frontend

    @classmethod
    def of(cls, cell: Cell) -> Column:
        """The column of a cell.

        Raises:
            UsageError: its environment is no release and no graft, and so none that others can have.
        """
        match = _RELEASE.fullmatch(cell.environment)
        try:
            version = str(Version(match["version"])) if match else ""
        except InvalidVersion:
            version = ""
        if not version:
            raise UsageError(
                f"a run holds results of {cell.environment!r}, which is no release of vLLM",
                hint="give runs of releases and grafts alone, as of `--vllm 0.32.0`",
            )
        return cls(version, cell.frontend)


CaseKey = tuple[Group, str]


@dataclass
class Standing:
    """How a feature of a family stands on a version.

    Attributes:
        cases: that were run.
        failed: those of them that failed.
        defects: id -> the cases that it explains.
        unexplained: the cases with a failure that no defect explains.
        state: whether it can be trusted.
    """

    cases: set[CaseKey] = field(default_factory=set)
    failed: set[CaseKey] = field(default_factory=set)
    defects: dict[str, set[CaseKey]] = field(default_factory=dict)
    unexplained: set[CaseKey] = field(default_factory=set)
    state: FeatureState = FeatureState.UNMEASURED


@dataclass
class Shown:
    """How a defect shows in the parsers of a family on a version.

    Attributes:
        features: that it breaks.
        failures: by which it shows, with what each answer was.
    """

    features: set[Feature] = field(default_factory=set)
    failures: dict[Failure, str] = field(default_factory=dict)

    @property
    def deliveries(self) -> set[Delivery]:
        """In which it shows."""
        return {failure.delivery for failure in self.failures}


@dataclass
class FamilyOnVersion:
    """A family's parsers on a version.

    Attributes:
        described: the server environment in full.
        engines: that ran its cases.
        tokenizers: that they were run on.
        groups: of cases, each with how many were run.
        left_out: case -> why the family has none.
        start_error: why vLLM could not make the parsers.
        features: how each stands.
        shown: defect's id -> how it shows.
        unexplained: failures that no defect explains, with the answers.
    """

    described: str
    engines: set[str] = field(default_factory=set)
    tokenizers: set[str] = field(default_factory=set)
    groups: dict[Group, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    start_error: str = ""
    features: dict[Feature, Standing] = field(default_factory=dict)
    shown: dict[str, Shown] = field(default_factory=dict)
    unexplained: dict[Failure, str] = field(default_factory=dict)

    def state(self, feature: Feature) -> FeatureState:
        """Whether a feature can be trusted."""
        if self.start_error:
            return FeatureState.NO_PARSER
        return self.features[feature].state if feature in self.features else FeatureState.UNMEASURED

    def count(self, state: FeatureState) -> int:
        """How many features are in a state."""
        return sum(standing.state is state for standing in self.features.values())


@dataclass(frozen=True)
class Compatibility:
    """The whole table.

    Attributes:
        columns: the oldest version first.
        families: name -> what was measured, by column; the columns where nothing was are not there.
        defects: all of the registry.
    """

    columns: tuple[Column, ...]
    families: Mapping[str, Mapping[Column, FamilyOnVersion]]
    defects: Mapping[str, Defect]

    @property
    def features(self) -> tuple[Feature, ...]:
        """Those that anything was measured of."""
        seen = {
            feature
            for measured in self.families.values()
            for each in measured.values()
            for feature in each.features
        }
        return tuple(feature for feature in Feature if feature in seen)

    def showing(self, defect: str) -> Iterator[tuple[str, Column, Shown]]:
        """Where a defect shows: the family, the column, and how."""
        for family, measured in self.families.items():
            for column, each in measured.items():
                if defect in each.shown:
                    yield family, column, each.shown[defect]


def compatibility(cells: Iterable[Cell], defects: Mapping[str, Defect]) -> Compatibility:
    """The table of the cells of runs; of two for the same place the later counts.

    Raises:
        UsageError: a cell is not of a release or a graft.
    """
    known = by_family(parser_defects(defects))
    latest = {(each.environment, each.engine, each.family, each.group): each for each in cells}
    families: dict[str, dict[Column, FamilyOnVersion]] = {}
    for cell in latest.values():
        name, column = cell.family.removesuffix(REAL), Column.of(cell)
        measured = families.setdefault(name, {}).setdefault(column, FamilyOnVersion(cell.described))
        _add(measured, cell, known.get(name, []), defects)
    for measured in (each for columns in families.values() for each in columns.values()):
        for standing in measured.features.values():
            standing.state = _state(standing, defects)
    columns = sorted({column for each in families.values() for column in each}, key=lambda each: each.order)
    return Compatibility(tuple(columns), dict(sorted(families.items())), defects)


def _add(
    measured: FamilyOnVersion, cell: Cell, known: list[ParserDefect], defects: Mapping[str, Defect]
) -> None:
    measured.engines.add(cell.engine)
    measured.tokenizers.add(cell.tokenizer)
    measured.start_error = measured.start_error or cell.start_error or ""
    ran = 0
    for name, case in cell.cases.items():
        if case.verdict is CaseVerdict.LEFT_OUT:
            measured.left_out[name] = case.left_out or ""
            continue
        ran += 1
        for delivery in {**case.digests, **case.curves, **case.mismatches}:
            _judge(measured, cell, name, case, delivery, known)
    measured.groups[cell.group] = measured.groups.get(cell.group, 0) + ran


def _judge(
    measured: FamilyOnVersion,
    cell: Cell,
    name: str,
    case: CaseResult,
    delivery: Delivery,
    known: list[ParserDefect],
) -> None:
    """Adds what one answer says."""
    feature, key = feature_of(cell.group, name, case.topic, delivery), (cell.group, name)
    standing = measured.features.setdefault(feature, Standing())
    standing.cases.add(key)
    for mismatch in case.mismatches.get(delivery, ()):
        standing.failed.add(key)
        failure = failure_in(cell, name, delivery, mismatch)
        answer = case.examples.get(delivery, "")
        ids = explaining_ids(failure, known)
        for each in ids:
            standing.defects.setdefault(each, set()).add(key)
            shown = measured.shown.setdefault(each, Shown())
            shown.features.add(feature)
            shown.failures[failure] = answer
        if not ids:
            standing.unexplained.add(key)
            measured.unexplained[failure] = answer


def is_minor(defect: Defect) -> bool:
    """Whether a client can live with it: the contract leaves it open, or it only costs time."""
    return defect.kind in ("arguable", "feature gap") or severity_of(defect) in ("delay", "contract")


def _state(standing: Standing, defects: Mapping[str, Defect]) -> FeatureState:
    if not standing.failed:
        return FeatureState.WORKS
    broken = {each for each in standing.defects if not is_minor(defects[each])}
    return FeatureState.BROKEN if broken or standing.unexplained else FeatureState.MINOR
