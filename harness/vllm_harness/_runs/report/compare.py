"""Two runs compared: which cases became worse, better, or otherwise wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from vllm_harness._errors import UsageError
from vllm_harness._runs.records import Case, Outcome, Target
from vllm_harness._runs.report.run import Run

_GOOD = (Outcome.PASSED,)
_BAD = (Outcome.FINDING, Outcome.KNOWN)
_DID_NOT_RUN = (Outcome.SKIPPED, Outcome.CANCELLED)


class Change(StrEnum):
    """What became of a case between two runs."""

    WORSE = "worse"
    BETTER = "better"
    OTHERWISE = "wrong otherwise"
    STILL = "still wrong"
    SAME = "same"
    GONE = "did not run again"
    NEW = "is new"


@dataclass(frozen=True)
class Compared:
    """A case in two runs.

    Attributes:
        before, after: the case in each; None where the run has none.
        change: from the one to the other.
    """

    before: Case | None
    after: Case | None
    change: Change

    @property
    def case(self) -> Case:
        """The later case that there is."""
        case = self.after or self.before
        assert case is not None
        return case


def compare(before: Run, after: Run) -> list[Compared]:
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
        found.append(Compared(old, case, _change(old, case)))
    found += [Compared(case, None, Change.GONE) for case in earlier.values() if case.target in pairs.values()]
    return found


def _pairs(before: Run, after: Run) -> dict[str, str]:
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


def _kind(target: Target) -> tuple[str, str, str]:
    return target.title, target.lane, target.frontend


def _change(before: Case | None, after: Case) -> Change:
    if before is None:
        return Change.NEW
    if after.outcome in _DID_NOT_RUN and before.outcome not in _DID_NOT_RUN:
        return Change.GONE
    if before.outcome in _DID_NOT_RUN:
        return Change.SAME if after.outcome in _DID_NOT_RUN else Change.NEW
    if after.outcome in _BAD:
        return _wrong(before, after)
    return Change.BETTER if before.outcome in _BAD and after.outcome in _GOOD else Change.SAME


def _wrong(before: Case, after: Case) -> Change:
    """Of a case that is wrong now."""
    if before.outcome not in _BAD or (before.outcome, after.outcome) == (Outcome.KNOWN, Outcome.FINDING):
        return Change.WORSE
    return Change.STILL if _signature(before) == _signature(after) else Change.OTHERWISE


def _signature(case: Case) -> tuple[object, ...]:
    """How a case is wrong, without what differs from run to run."""
    codes = frozenset((each.code, each.path) for each in case.findings if each.code and not each.known)
    return case.outcome, frozenset(case.defects), codes


def lines(compared: list[Compared], *changes: Change) -> Iterator[Compared]:
    """Those with one of these changes."""
    return (each for each in compared if each.change in changes)
