"""How a change to vLLM's code affects the known defects: which it fixes, and which it makes worse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from vllm_harness._regression.cases.case import Group
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.known_defects import (
    ParserDefect,
    by_family,
    explaining_ids,
    failures_of,
)
from vllm_harness._regression.results.selections import Failure


class DefectChange(StrEnum):
    """How a change affects a defect."""

    REGRESSED = "regression"
    FIXED = "fixed"
    FIXED_IN_PART = "fixed in part"


@dataclass(frozen=True)
class ChangedDefect:
    """A defect whose failures differ before and after a change.

    Attributes:
        defect: the defect; None for the failures that no defect explains.
        families: the families whose failures differ.
        before, gone, new: the numbers of failures before the change, of those that are gone, and of new ones.
    """

    defect: ParserDefect | None
    families: tuple[str, ...]
    before: int
    gone: int
    new: int

    @property
    def change(self) -> DefectChange:
        """How the change affects the defect; a single new failure makes it a regression."""
        if self.new:
            return DefectChange.REGRESSED
        return DefectChange.FIXED if self.gone == self.before else DefectChange.FIXED_IN_PART


def changed_defects(
    known: Iterable[ParserDefect], before: Iterable[Cell], after: Iterable[Cell]
) -> list[ChangedDefect]:
    """The defects whose failures differ in the cases that ran both before and after, regressions first."""
    defects = {defect.id: defect for defect in known}
    families = by_family(defects.values())
    old, new = _failures(before), _failures(after)
    in_both = old.keys() & new.keys()
    old_failures, new_failures = (
        {failure for case in in_both for failure in run[case]} for run in (old, new)
    )
    by_defect: dict[str | None, set[Failure]] = {}
    for failure in old_failures | new_failures:
        ids: list[str | None] = [*explaining_ids(failure, families.get(failure.plain_family, ()))]
        for defect_id in ids or [None]:
            by_defect.setdefault(defect_id, set()).add(failure)
    differing = old_failures ^ new_failures
    changed = [
        ChangedDefect(
            defects.get(defect_id or ""),
            tuple(sorted({failure.plain_family for failure in failures & differing})),
            before=len(failures & old_failures),
            gone=len(failures - new_failures),
            new=len(failures - old_failures),
        )
        for defect_id, failures in sorted(by_defect.items(), key=lambda item: item[0] or "")
        if not failures.isdisjoint(differing)
    ]
    return sorted(changed, key=lambda defect: list(DefectChange).index(defect.change))


def _failures(cells: Iterable[Cell]) -> dict[tuple[str, Group, str], list[Failure]]:
    """The failures of each case that ran."""
    by_case: dict[tuple[str, Group, str], list[Failure]] = {}
    for cell in cells:
        for name, case in cell.cases.items():
            if case.is_judged:
                by_case[cell.family, cell.group, name] = []
        for failure in failures_of(cell):
            by_case[failure.family, failure.group, failure.case].append(failure)
    return by_case
