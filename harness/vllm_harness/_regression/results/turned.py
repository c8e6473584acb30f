"""Which known defects a change of vLLM's code has turned: fixed, fixed in part, or shown anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from vllm_harness._regression.cases.case import Group
from vllm_harness._regression.results.cells import CaseVerdict, Cell
from vllm_harness._regression.results.explained import (
    Failure,
    ParserDefect,
    by_family,
    explaining,
    failures_of,
)


class DefectChange(StrEnum):
    """What became of a defect."""

    REGRESSED = "regression"
    FIXED = "fixed"
    FIXED_IN_PART = "fixed in part"


@dataclass(frozen=True)
class TurnedDefect:
    """A defect with failures that came or went.

    Attributes:
        defect: which; None: the failures that no defect explains.
        families: where they came or went.
        before: how many failures it explained.
        gone, new: how many of those are gone, and how many there are that were not.
    """

    defect: ParserDefect | None
    families: tuple[str, ...]
    before: int
    gone: int
    new: int

    @property
    def turn(self) -> DefectChange:
        """What became of it: one new failure counts more than all that are gone."""
        if self.new:
            return DefectChange.REGRESSED
        return DefectChange.FIXED if self.gone == self.before else DefectChange.FIXED_IN_PART


def turned(
    known: Iterable[ParserDefect], before: Iterable[Cell], after: Iterable[Cell]
) -> list[TurnedDefect]:
    """The defects whose failures differ in the cases that ran both before and after, regressions first."""
    defects = {each.id: each for each in known}
    families = by_family(defects.values())
    old, new = _failures(before), _failures(after)
    ran = old.keys() & new.keys()
    was, now = ({failure for case in ran for failure in side[case]} for side in (old, new))
    explained: dict[str | None, set[Failure]] = {}
    for failure in was | now:
        names: list[str | None] = [*explaining(failure, families.get(failure.plain_family, ()))]
        for name in names or [None]:
            explained.setdefault(name, set()).add(failure)
    found = [
        TurnedDefect(
            defects.get(name or ""),
            tuple(sorted({failure.plain_family for failure in own & (was ^ now)})),
            before=len(own & was),
            gone=len(own - now),
            new=len(own - was),
        )
        for name, own in sorted(explained.items(), key=lambda item: item[0] or "")
        if not own.isdisjoint(was ^ now)
    ]
    return sorted(found, key=lambda each: list(DefectChange).index(each.turn))


def _failures(cells: Iterable[Cell]) -> dict[tuple[str, Group, str], list[Failure]]:
    """The failures of each case that ran."""
    found: dict[tuple[str, Group, str], list[Failure]] = {}
    for cell in cells:
        for name, case in cell.cases.items():
            if case.verdict is not CaseVerdict.LEFT_OUT:
                found[cell.family, cell.group, name] = []
        for failure in failures_of(cell):
            found[failure.family, failure.group, failure.case].append(failure)
    return found
