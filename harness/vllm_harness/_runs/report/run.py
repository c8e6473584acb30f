"""Reads a run folder for the reports, leaving out the recorded exchanges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._runs.reading import header_of, latest_cases, records
from vllm_harness._runs.records import CaseRecord, End, Header, Outcome, TargetRecord

_READ = frozenset({"target", "case", "end"})


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run, which may be incomplete.

    Attributes:
        folder: the run folder.
        header: the first record of the run.
        targets: the targets by id, including those that only cases refer to.
        cases: the latest record of each case on each target, in the order in which they were first written.
        end: the last record; None if the run was killed or is still running.
    """

    folder: Path
    header: Header
    targets: dict[str, TargetRecord]
    cases: list[CaseRecord]
    end: End | None

    def of(self, *outcomes: Outcome) -> list[CaseRecord]:
        """Lists the cases with one of these outcomes."""
        return [case for case in self.cases if case.outcome in outcomes]

    def title(self, target: str) -> str:
        """A human-readable name for a target: its title, or its id if another target has the same title."""
        title = self.targets[target].title
        return title if [each.title for each in self.targets.values()].count(title) == 1 else target


def read_run(folder: Path) -> RecordedRun:
    """Reads a run. Raises UsageError like `reading.header_of`."""
    header = header_of(folder)
    targets: dict[str, TargetRecord] = {}
    cases: list[CaseRecord] = []
    end = None
    for _, record in records(folder, only=_READ):
        match record:
            case TargetRecord():
                targets[record.id] = record
            case CaseRecord():
                cases.append(record)
            case End():
                end = record
    for case in cases:
        targets.setdefault(case.target, TargetRecord(id=case.target, title=case.target))
    return RecordedRun(folder, header, targets, latest_cases(cases), end)


def counts(cases: Iterable[CaseRecord]) -> Counter[Outcome]:
    """Counts the cases with each outcome."""
    return Counter(case.outcome for case in cases)


def duration_s(run: RecordedRun) -> float:
    """The duration of a run in seconds; up to the end of its last case if it has no end record."""
    if run.end:
        return run.end.at - run.header.started
    ends = [case.started + (case.seconds or 0) for case in run.cases if case.started is not None]
    return max(ends, default=run.header.started) - run.header.started
