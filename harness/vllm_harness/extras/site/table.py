"""The compatibility table: results of runs by version, family and feature, with known defects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from packaging.version import InvalidVersion, Version

from vllm_harness._configuration.model_entries import Frontend
from vllm_harness._defects.entry import Defect
from vllm_harness._errors import UsageError
from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.cases.case import Group
from vllm_harness._regression.results.cells import CaseResult, CaseVerdict, Cell
from vllm_harness._regression.results.known_defects import (
    ParserDefect,
    by_family,
    explaining_ids,
    failure_in,
    parser_defects,
)
from vllm_harness._regression.results.selections import Failure
from vllm_harness._scripted.families import REAL
from vllm_harness.extras.site.features import Feature, feature_of
from vllm_harness.extras.triage.severity import severity_of

_RELEASE = re.compile(r"(?P<version>\d+(?:\.\d+)+\w*)(?:@[\w.]+)?(?:\+rust)?")


class FeatureState(StrEnum):
    """How well a feature works."""

    WORKS = "works"
    MINOR = "minor"
    """Each failure is a difference that the contract permits, a missing feature, or a delay."""
    BROKEN = "broken"
    UNMEASURED = "unmeasured"
    NO_PARSER = "no parser"


@dataclass(frozen=True)
class Column:
    """A release of vLLM with one of its front ends.

    Attributes:
        version: the version, such as `0.32.0`.
        frontend: the front end that answers, or whose parsers are driven.
    """

    version: str
    frontend: Frontend = "python"

    @property
    def label(self) -> str:
        """The heading of the column."""
        return self.version if self.frontend == "python" else f"{self.version} Rust"

    @property
    def anchor(self) -> str:
        """The permanent anchor of the column's part of a family's page."""
        return f"v{self.version}" if self.frontend == "python" else f"v{self.version}-rust"

    @property
    def order(self) -> tuple[Version, str]:
        """The sort key, by which the oldest version comes first."""
        return Version(self.version), self.frontend

    @classmethod
    def of(cls, cell: Cell) -> Column:
        """The column that a cell belongs to.

        Raises:
            UsageError: the cell's environment is neither a release nor a graft.
        """
        match = _RELEASE.fullmatch(cell.environment)
        try:
            version = str(Version(match["version"])) if match else ""
        except InvalidVersion:
            version = ""
        if not version:
            raise UsageError(
                f"a run contains results for {cell.environment!r}, which is not a release of vLLM",
                hint="use runs of releases and grafts only, such as --vllm 0.32.0",
            )
        return cls(version, cell.frontend)


CaseKey = tuple[Group, str]


@dataclass
class FeatureResult:
    """The result for a feature of a family on a version.

    Attributes:
        cases: the cases that were run.
        failed: the cases that failed.
        defects: defect id -> the cases that the defect explains.
        unexplained: the cases with failures that no defect explains.
        state: how well the feature works.
    """

    cases: set[CaseKey] = field(default_factory=set)
    failed: set[CaseKey] = field(default_factory=set)
    defects: dict[str, set[CaseKey]] = field(default_factory=dict)
    unexplained: set[CaseKey] = field(default_factory=set)
    state: FeatureState = FeatureState.UNMEASURED


@dataclass
class DefectFailures:
    """The failures that a defect explains, for a family on a version.

    Attributes:
        features: the features that the defect breaks.
        failures: the failures, each with the answer that shows it.
    """

    features: set[Feature] = field(default_factory=set)
    failures: dict[Failure, str] = field(default_factory=dict)

    @property
    def deliveries(self) -> set[Delivery]:
        """The deliveries in which a failure occurred."""
        return {failure.delivery for failure in self.failures}


@dataclass
class FamilyOnVersion:
    """The results for a family's parsers on a version.

    Attributes:
        described: a full description of the server environment.
        engines: the engines that ran the cases.
        tokenizers: the tokenizers that the engines used.
        groups: group -> the number of its cases that were run.
        left_out: case -> the reason why it was left out.
        start_error: the reason why vLLM could not make the parsers; empty if it could.
        features: the result for each feature.
        shown: defect id -> the failures that the defect explains.
        unexplained: the failures that no defect explains, each with the answer that shows it.
    """

    described: str
    engines: set[str] = field(default_factory=set)
    tokenizers: set[str] = field(default_factory=set)
    groups: dict[Group, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    start_error: str = ""
    features: dict[Feature, FeatureResult] = field(default_factory=dict)
    shown: dict[str, DefectFailures] = field(default_factory=dict)
    unexplained: dict[Failure, str] = field(default_factory=dict)

    def state(self, feature: Feature) -> FeatureState:
        """How well a feature works."""
        if self.start_error:
            return FeatureState.NO_PARSER
        return self.features[feature].state if feature in self.features else FeatureState.UNMEASURED

    def count(self, state: FeatureState) -> int:
        """The number of features that are in a state."""
        return sum(standing.state is state for standing in self.features.values())


@dataclass(frozen=True)
class Compatibility:
    """The whole compatibility table.

    Attributes:
        columns: the columns, the oldest version first.
        families: the results for each family, by name and column; only columns with results.
        defects: all defects of the registry.
    """

    columns: tuple[Column, ...]
    families: Mapping[str, Mapping[Column, FamilyOnVersion]]
    defects: Mapping[str, Defect]

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features for which there are results."""
        measured_features = {
            feature
            for measured in self.families.values()
            for each in measured.values()
            for feature in each.features
        }
        return tuple(feature for feature in Feature if feature in measured_features)

    def showing(self, defect: str) -> Iterator[tuple[str, Column, DefectFailures]]:
        """Each family and column that show a defect, with the failures."""
        for family, measured in self.families.items():
            for column, each in measured.items():
                if defect in each.shown:
                    yield family, column, each.shown[defect]


def compatibility(cells: Iterable[Cell], defects: Mapping[str, Defect]) -> Compatibility:
    """Makes the table from the cells of runs; if a cell occurs twice, the later result counts.

    Raises:
        UsageError: a cell's environment is neither a release nor a graft.
    """
    known = by_family(parser_defects(defects))
    latest = {(cell.environment, cell.engine, cell.family, cell.group): cell for cell in cells}
    families: dict[str, dict[Column, FamilyOnVersion]] = {}
    for cell in latest.values():
        name, column = cell.family.removesuffix(REAL), Column.of(cell)
        measured = families.setdefault(name, {}).setdefault(column, FamilyOnVersion(cell.described))
        _add(measured, cell, known.get(name, []), defects)
    for measured in (measured for columns in families.values() for measured in columns.values()):
        for standing in measured.features.values():
            standing.state = _state(standing, defects)
    columns = sorted(
        {column for family in families.values() for column in family}, key=lambda each: each.order
    )
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
        ran += case.is_judged
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
    """Adds the result for one answer to the results of a family on a version."""
    feature, key = feature_of(cell.group, name, case.topic, delivery), (cell.group, name)
    standing = measured.features.setdefault(feature, FeatureResult())
    standing.cases.add(key)
    for mismatch in case.mismatches.get(delivery, ()):
        standing.failed.add(key)
        failure = failure_in(cell, name, delivery, mismatch)
        answer = case.examples.get(delivery, "")
        ids = explaining_ids(failure, known)
        for id_ in ids:
            standing.defects.setdefault(id_, set()).add(key)
            shown = measured.shown.setdefault(id_, DefectFailures())
            shown.features.add(feature)
            shown.failures[failure] = answer
        if not ids:
            standing.unexplained.add(key)
            measured.unexplained[failure] = answer


def is_minor(defect: Defect) -> bool:
    """Whether a defect is minor: the contract permits it, a feature is missing, or it only costs time."""
    return defect.kind in ("arguable", "feature gap") or severity_of(defect) in ("delay", "contract")


def _state(standing: FeatureResult, defects: Mapping[str, Defect]) -> FeatureState:
    if not standing.failed:
        return FeatureState.WORKS
    broken = {defect for defect in standing.defects if not is_minor(defects[defect])}
    return FeatureState.BROKEN if broken or standing.unexplained else FeatureState.MINOR
