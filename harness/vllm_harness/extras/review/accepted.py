"""The file of regressions that a project has decided to live with."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date as Day
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field

from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness.extras.review.verdict import Named, ShownFailure


class AcceptedRegression(StrictModel):
    """Regressions that are accepted; an empty list accepts any.

    Attributes:
        families, groups, cases: what they concern, as patterns; for tests, the files, targets and tests.
        mismatches: the codes of their worst mismatch, such as `text_differs` or `text_differs:lost`.
        reason: why they are accepted.
        date: when that was decided.
        until: the last day on which they are accepted; None for no end.
    """

    families: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    mismatches: tuple[str, ...] = ()
    reason: str = Field(min_length=1)
    date: Day
    until: Day | None = None

    def accepts(self, failure: ShownFailure, today: Day) -> bool:
        """Whether a failure is accepted today."""
        named = ((failure.family, self.families), (failure.group, self.groups), (failure.case, self.cases))
        return (
            (self.until is None or today <= self.until)
            and all(
                not patterns or any(fnmatchcase(name, each) for each in patterns) for name, patterns in named
            )
            and (not self.mismatches or any(_covers(code, failure.mismatch) for code in self.mismatches))
        )


class AcceptedFile(StrictModel):
    """The content of a file of accepted regressions."""

    accepted: tuple[AcceptedRegression, ...]


def read_accepted(path: Path | None) -> tuple[AcceptedRegression, ...]:
    """Reads a file. Raises UsageError, which names the line, if it is not valid."""
    if path is None:
        return ()
    read: AcceptedFile = read_yaml(path).validated(AcceptedFile)
    return read.accepted


def divided(
    failures: Iterable[ShownFailure], accepted: Iterable[AcceptedRegression], today: Day
) -> tuple[list[ShownFailure], list[Named]]:
    """Divides failures into those that count, and those that are accepted, with the reason."""
    entries = list(accepted)
    counting: list[ShownFailure] = []
    living: list[Named] = []
    for failure in failures:
        entry = next((each for each in entries if each.accepts(failure, today)), None)
        if entry is None:
            counting.append(failure)
        else:
            what = f"{failure.family}, {failure.group}, {failure.case}: {failure.mismatch}"
            living.append(Named(what=what, reason=f"{entry.reason} ({entry.date})"))
    return counting, living


def _covers(code: str, mismatch: str) -> bool:
    if ":" not in code:
        return code == mismatch.partition(":")[0]
    return Mismatch.parse(code) == Mismatch.parse(mismatch)
