"""Two runs compared: which cases became worse, better, or otherwise wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from vllm_harness._errors import UsageError
from vllm_harness._runs.records import CaseRecord, Outcome, TargetRecord
from vllm_harness._runs.report.run import RecordedRun

_GOOD = (Outcome.PASSED,)
_BAD = (Outcome.FINDING, Outcome.KNOWN)
_DID_NOT_RUN = (Outcome.SKIPPED, Outcome.CANCELLED)


class OutcomeChange(StrEnum):
    """What became of a case between two runs."""

    WORSE = "worse"
    BETTER = "better"
    OTHERWISE = "wrong otherwise"
    STILL = "still wrong"
    SAME = "same"
    GONE = "did not run again"
    NEW = "is new"


@dataclass(frozen=True)
class ComparedCase:
    """A case in two runs.

    Attributes:
        before, after: the case in each; None where the run has none.
        change: from the one to the other.
    """

    before: CaseRecord | None
    after: CaseRecord | None
    change: OutcomeChange

    @property
    def case(self) -> CaseRecord:
        """The later case that there is."""
        case = self.after or self.before
        assert case is not None
        return case


def compare(before: RecordedRun, after: RecordedRun) -> list[ComparedCase]:
    """Every case of either run, in the order of the later one, then those that it has no more.

    Targets are the same where their ids are, else where model, lane and front end are; where each run has one
    target, these two.

    Raises:
        UsageError: the runs have no target in common.
    """
    pairs = _pairs(before, after)
    earlier = {(case.target, case.id): case for case in before.cases}
    found = []
    for case in after.cases:
        old = earlier.pop((pairs.get(case.target, ""), case.id), None)
        found.append(ComparedCase(old, case, _change(old, case)))
    found += [
        ComparedCase(case, None, OutcomeChange.GONE)
        for case in earlier.values()
        if case.target in pairs.values()
    ]
    return found


def _pairs(before: RecordedRun, after: RecordedRun) -> dict[str, str]:
    """The earlier target of each later one."""
    pairs = {target: target for target in after.targets if target in before.targets}
    for name, target in after.targets.items():
        alike = [each for each, of in before.targets.items() if _kind(of) == _kind(target)]
        free = [each for each in alike if each not in pairs.values()]
        if name not in pairs and len(free) == 1:
            pairs[name] = free[0]
    if not pairs and len(before.targets) == len(after.targets) == 1:
        pairs = dict(zip(after.targets, before.targets, strict=True))
    if not pairs:
        raise UsageError(
            f"the runs have no target in common: {', '.join(before.targets) or 'none'} in {before.folder}, "
            f"{', '.join(after.targets) or 'none'} in {after.folder}",
            hint="compare runs of the same model",
        )
    return pairs


def _kind(target: TargetRecord) -> tuple[str, str, str]:
    return target.title, target.lane, target.frontend


def _change(before: CaseRecord | None, after: CaseRecord) -> OutcomeChange:
    if before is None:
        return OutcomeChange.NEW
    if after.outcome in _DID_NOT_RUN and before.outcome not in _DID_NOT_RUN:
        return OutcomeChange.GONE
    if before.outcome in _DID_NOT_RUN:
        return OutcomeChange.SAME if after.outcome in _DID_NOT_RUN else OutcomeChange.NEW
    if after.outcome in _BAD:
        return _wrong(before, after)
    return OutcomeChange.BETTER if before.outcome in _BAD and after.outcome in _GOOD else OutcomeChange.SAME


def _wrong(before: CaseRecord, after: CaseRecord) -> OutcomeChange:
    """Of a case that is wrong now."""
    if before.outcome not in _BAD or (before.outcome, after.outcome) == (Outcome.KNOWN, Outcome.FINDING):
        return OutcomeChange.WORSE
    return OutcomeChange.STILL if _signature(before) == _signature(after) else OutcomeChange.OTHERWISE


def _signature(case: CaseRecord) -> tuple[object, ...]:
    """How a case is wrong, without what differs from run to run."""
    codes = frozenset((each.code, each.path) for each in case.findings if each.code and not each.known)
    return case.outcome, frozenset(case.defects), codes


def lines(compared: list[ComparedCase], *changes: OutcomeChange) -> Iterator[ComparedCase]:
    """Those with one of these changes."""
    return (each for each in compared if each.change in changes)
