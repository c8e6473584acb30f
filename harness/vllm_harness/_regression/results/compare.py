"""Compares two runs, or a run with a baseline, case by case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

from vllm_harness._errors import UsageError
from vllm_harness._exchange.delivery import Chunking, Delivery, DeliveryField
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.case import Group
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.mismatches import Mismatch, MismatchCode, MismatchField

CaseKey = tuple[str, Group, str]
"""The family, group and name of a case."""
PARSERS_ARE_MADE = "parsers can be made"
"""The name of the additional case that fails if vLLM cannot make the parsers."""
CaseMismatches = dict[DeliveryField, tuple[MismatchField, ...]]
_NOT_MADE: CaseMismatches = {Delivery(Chunking.WHOLE): (Mismatch(MismatchCode.PARSERS_NOT_MADE),)}


@dataclass(frozen=True)
class CaseChange:
    """A case whose mismatches changed; `before` or `after` is empty if the case passed in that run."""

    family: str
    group: Group
    case: str
    before: CaseMismatches
    after: CaseMismatches

    @property
    def regressed(self) -> bool:
        """Whether a delivery has a new mismatch."""
        return any(
            set(mismatches) - set(self.before.get(delivery, ()))
            for delivery, mismatches in self.after.items()
        )


class Baseline(StrictModel):
    """The known mismatches of a run.

    Attributes:
        vllm, engine: the vLLM spec and the engine of the run.
        covers: family -> groups that ran; cells of other groups are not compared with the baseline.
        mismatches: family -> group -> case -> delivery -> mismatches.
    """

    vllm: str
    engine: Engine
    covers: dict[str, tuple[Group, ...]]
    mismatches: dict[str, dict[Group, dict[str, CaseMismatches]]]

    def covers_cell(self, cell: Cell) -> bool:
        """Whether the baseline includes the family and group of a cell."""
        return cell.group in self.covers.get(cell.family, ())

    def of(self, key: CaseKey) -> CaseMismatches:
        """Returns the known mismatches of a case."""
        family, group, case = key
        return self.mismatches.get(family, {}).get(group, {}).get(case, {})


def changes(before: Iterable[Cell], after: Iterable[Cell]) -> list[CaseChange]:
    """Returns the cases that ran in both runs with different mismatches."""
    old, new = list(before), list(after)
    return _changes(_by_case(old), _by_case(new), _not_held([*old, *new]))


def against(baseline: Baseline, cells: Iterable[Cell]) -> list[CaseChange]:
    """Returns the covered cases that differ from the baseline; cases it does not list count as passed."""
    covered = [cell for cell in cells if baseline.covers_cell(cell)]
    after = _by_case(covered)
    return _changes({key: baseline.of(key) for key in after}, after, _not_held(covered))


def _by_case(cells: Iterable[Cell]) -> dict[CaseKey, CaseMismatches]:
    """Returns the mismatches of each case; `PARSERS_ARE_MADE` is an additional case in each cell."""
    by_case: dict[CaseKey, CaseMismatches] = {}
    for cell in cells:
        by_case[cell.family, cell.group, PARSERS_ARE_MADE] = _NOT_MADE if cell.start_error else {}
        for name, case in cell.cases.items():
            if case.is_judged:
                by_case[cell.family, cell.group, name] = case.mismatches
    return by_case


def _not_held(cells: Iterable[Cell]) -> set[tuple[CaseKey, Delivery]]:
    return {
        ((cell.family, cell.group, name), delivery)
        for cell in cells
        for name, case in cell.cases.items()
        for delivery in case.not_held
    }


def _changes(
    before: dict[CaseKey, CaseMismatches],
    after: dict[CaseKey, CaseMismatches],
    not_held: set[tuple[CaseKey, Delivery]],
) -> list[CaseChange]:
    """Returns the cases that differ in a delivery that was judged in both runs."""
    compared = []
    for key in sorted(before.keys() & after.keys()):
        both = ({d: m for d, m in run[key].items() if (key, d) not in not_held} for run in (before, after))
        compared.append(CaseChange(*key, *both))
    return [change for change in compared if change.before != change.after]


def baseline_of(vllm: str, cells: Iterable[Cell]) -> Baseline:
    """Makes a baseline from the mismatches in a run of one engine."""
    mismatches: dict[str, dict[Group, dict[str, CaseMismatches]]] = {}
    covers: dict[str, tuple[Group, ...]] = {}
    engine: Engine = "in-process"
    for cell in cells:
        engine = cell.engine
        if cell.start_error is None:
            covers[cell.family] = (*covers.get(cell.family, ()), cell.group)
        for name, case in cell.cases.items():
            if case.mismatches:
                mismatches.setdefault(cell.family, {}).setdefault(cell.group, {})[name] = case.mismatches
    return Baseline(vllm=vllm, engine=engine, covers=covers, mismatches=mismatches)


def read_baseline(path: Path) -> Baseline:
    """Reads a baseline. Raises UsageError if the file cannot be read or has an invalid key."""
    try:
        return Baseline.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise UsageError(
            f"{path} is not a valid baseline: {error}", hint="write one with --write-baseline"
        ) from error


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Writes a baseline as YAML in a stable order, with each delivery's mismatches on one line."""
    document = baseline.model_dump(mode="json")
    path.write_text(
        yaml.safe_dump(document, sort_keys=True, allow_unicode=True, width=1000, default_flow_style=None)
    )
