"""Runs case sets before and after a change at the same time, and compares each as soon as both are done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import HarnessError
from vllm_harness._machine.shard import ThisMachine
from vllm_harness._machine.tasks import raise_if_interrupted
from vllm_harness._regression.cases.case import CaseSet, Group
from vllm_harness._regression.results.cells import Cell, RegressionRun
from vllm_harness._regression.results.compare import CaseChange, changes
from vllm_harness._regression.run import Batch, shard_of, unfinished
from vllm_harness._terminal.pace import minutes
from vllm_harness.cli.counting import counted

QUICKEST_FIRST: tuple[Group, ...] = (
    *("look-alikes", "canonical", "chunks", "properties", "forced", "malformed"),
    *("load", "cost"),
)
"""The groups by the time that their cases take in process."""


@dataclass(frozen=True)
class Side:
    """The code before or after a change, and the run that stores its cells."""

    vllm: VllmUnderTest
    run: RegressionRun

    def cell(self, cases: CaseSet) -> Cell | None:
        """The finished cell of a case set."""
        cell = self.run.cell(self.vllm.name, "in-process", cases.family.name, cases.group)
        return cell if cell and cell.cases_digest == cases.digest else None


class HeadFailed(HarnessError):
    """The code after the change does not run at all, while the code before it does."""


@dataclass
class BothSides:
    """Runs case sets in process on both sides.

    Attributes:
        base, head: the code before and after the change.
        parallel: the number of interpreters at a time.
        until_red: whether to stop at the first regression.
        say: receives a line at the first regression.
    """

    base: Side
    head: Side
    parallel: int
    until_red: bool
    say: Callable[[str], None]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _seen: bool = field(default=False, init=False)
    _ended: bool = field(default=False, init=False)

    def run(self, case_sets: Sequence[CaseSet], title: str, elapsed: Callable[[], float]) -> list[CaseChange]:
        """Runs the case sets that have not run yet, and returns the cases whose mismatches changed.

        Raises:
            HeadFailed: only the code after the change does not run.
            HarnessError: a case set could not be run.
        """
        ordered = sorted(case_sets, key=lambda cases: QUICKEST_FIRST.index(cases.group))
        batches = self._batches(ordered)
        by_place = {(cases.family.name, cases.group): cases for cases in ordered}
        total = sum(len(batch.case_sets) for batch in batches)
        with counted(title, total) as advance:

            def write(cell: Cell) -> None:
                raise_if_interrupted()
                side = self.head if cell.environment == self.head.vllm.name else self.base
                side.run.write(cell)
                advance()
                self._look(by_place[cell.family, cell.group], elapsed)

            try:
                errors = ThisMachine(max(self.parallel, 2)).run(list(map(shard_of, batches)), write)
            except KeyboardInterrupt:
                if not self._ended:
                    raise
                errors = []
        if errors and not self._left(self.base, ordered) and not errors[0].of_machine:
            raise HeadFailed(errors[0].message)
        if errors:
            raise errors[0]
        return list(changes(*self.cells(ordered)))

    def cells(self, case_sets: Sequence[CaseSet]) -> tuple[list[Cell], list[Cell]]:
        """The cells that have finished on both sides, before and after the change."""
        pairs = [(self.base.cell(cases), self.head.cell(cases)) for cases in case_sets]
        both = [(old, new) for old, new in pairs if old and new]
        return [old for old, _ in both], [new for _, new in both]

    def _batches(self, case_sets: Sequence[CaseSet]) -> list[Batch]:
        """Shares the machine between the sides; a side whose cells are stored leaves it to the other."""
        sides = [side for side in (self.head, self.base) if self._left(side, case_sets)]
        shares = max(1, self.parallel // max(1, len(sides)))
        of_sides = [unfinished(side.run, [side.vllm], case_sets, parallel=shares) for side in sides]
        return [batch for together in _in_turn(of_sides) for batch in together]

    def _left(self, side: Side, case_sets: Sequence[CaseSet]) -> bool:
        return any(cases.cases and side.cell(cases) is None for cases in case_sets)

    def _look(self, cases: CaseSet, elapsed: Callable[[], float]) -> None:
        """Reports the first case set with a regression."""
        old, new = self.base.cell(cases), self.head.cell(cases)
        with self._lock:
            if self._seen or not old or not new:
                return
            regressed = [change for change in changes([old], [new]) if change.regressed]
            self._seen = bool(regressed)
        if regressed:
            first = regressed[0]
            self.say(f"first red after {minutes(elapsed())}: {first.family}, {first.group}, {first.case}")
            if self.until_red:
                self._ended = True
                raise KeyboardInterrupt  # ends what runs beside it


def _in_turn(of_sides: Sequence[Sequence[Batch]]) -> Iterator[tuple[Batch, ...]]:
    """The batches of all sides, the first of each, then the second of each."""
    for number in range(max(map(len, of_sides), default=0)):
        yield tuple(batches[number] for batches in of_sides if number < len(batches))
