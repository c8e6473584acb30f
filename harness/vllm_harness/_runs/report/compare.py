"""Compares two runs: which cases got better or worse, or fail in a different way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vllm_harness._errors import UsageError
from vllm_harness._runs.records import CaseRecord, Outcome, TargetRecord
from vllm_harness._runs.report.run import RecordedRun

_GOOD = (Outcome.PASSED,)
_BAD = (Outcome.FINDING, Outcome.KNOWN)
_DID_NOT_RUN = (Outcome.SKIPPED, Outcome.CANCELLED, Outcome.NOT_JUDGED)


class OutcomeChange(StrEnum):
    """How a case changed between two runs."""

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
        before, after: the case in the earlier and in the later run; None if the run does not contain it.
        change: the change from the earlier to the later run.
    """

    before: CaseRecord | None
    after: CaseRecord | None
    change: OutcomeChange

    @property
    def case(self) -> CaseRecord:
        """The case in the later run, or in the earlier one if the later run does not contain it."""
        case = self.after or self.before
        assert case is not None
        return case


def compare(before: RecordedRun, after: RecordedRun) -> list[ComparedCase]:
    """Compares the cases of two runs, in the order of the later run; cases of the earlier run only come last.

    Targets are paired if their ids match, or else their title, lane and front end; if each run has a single
    target, these two are paired.

    Raises:
        UsageError: the runs have no target in common.
    """
    pairs = _pairs(before, after)
    earlier = {(case.target, case.id): case for case in before.cases}
    compared = []
    for case in after.cases:
        old = earlier.pop((pairs.get(case.target, ""), case.id), None)
        compared.append(ComparedCase(old, case, _change(old, case)))
    compared += [
        ComparedCase(case, None, OutcomeChange.GONE)
        for case in earlier.values()
        if case.target in pairs.values()
    ]
    return compared


def _pairs(before: RecordedRun, after: RecordedRun) -> dict[str, str]:
    """Maps the id of each target of the later run to that of its counterpart in the earlier run."""
    pairs = {target: target for target in after.targets if target in before.targets}
    for name, target in after.targets.items():
        alike = [id for id, earlier in before.targets.items() if _kind(earlier) == _kind(target)]
        free = [id for id in alike if id not in pairs.values()]
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
    """The change of a case that fails in the later run."""
    if before.outcome not in _BAD or (before.outcome, after.outcome) == (Outcome.KNOWN, Outcome.FINDING):
        return OutcomeChange.WORSE
    return OutcomeChange.STILL if _signature(before) == _signature(after) else OutcomeChange.OTHERWISE


def _signature(case: CaseRecord) -> tuple[object, ...]:
    """Identifies the problems of a case, without the details that differ from run to run."""
    codes = frozenset((one.code, one.path) for one in case.findings if one.code and not one.known)
    return case.outcome, frozenset(case.defects), codes
