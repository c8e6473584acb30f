"""A run folder as the reports read it: without its exchanges, which a page reads where it shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._runs.reading import header_of, last_word, records
from vllm_harness._runs.records import CaseRecord, End, Header, Outcome, TargetRecord

_READ = frozenset({"target", "case", "end"})


@dataclass(frozen=True)
class RecordedRun:
    """A run, whole or as far as it came.

    Attributes:
        folder: where it is.
        header: its first record.
        targets: by their ids; those that only cases name as well.
        cases: one of each id and target, in the order in which they were first written.
        end: None where it was killed, or still goes on.
    """

    folder: Path
    header: Header
    targets: dict[str, TargetRecord]
    cases: list[CaseRecord]
    end: End | None

    def of(self, *outcomes: Outcome) -> list[CaseRecord]:
        """The cases with one of these outcomes."""
        return [case for case in self.cases if case.outcome in outcomes]

    def title(self, target: str) -> str:
        """A target for people: its title, and what tells it from others of that title."""
        known = self.targets[target]
        alike = [each for each in self.targets.values() if each.title == known.title]
        return known.title if len(alike) == 1 else target


def read_run(folder: Path) -> RecordedRun:
    """Reads a run. Raises UsageError where none is there, or a record is damaged; see `runs.reading`."""
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
    return RecordedRun(folder, header, targets, last_word(cases), end)


def counts(cases: Iterable[CaseRecord]) -> Counter[Outcome]:
    """The number of cases by outcome."""
    return Counter(case.outcome for case in cases)


def duration_s(run: RecordedRun) -> float:
    """How long a run took; of one that has no end, as long as its cases say."""
    if run.end:
        return run.end.at - run.header.started
    ends = [case.started + (case.seconds or 0) for case in run.cases if case.started is not None]
    return max(ends, default=run.header.started) - run.header.started
