"""Groups failures by cause and kind, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from vllm_harness.extras.review.verdict import Cause, FailureKind, ShownFailure
from vllm_harness.extras.triage.severity import SEVERITIES


def causes_of(
    failures: Iterable[ShownFailure], files_of: Callable[[str], tuple[str, ...]]
) -> tuple[Cause, ...]:
    """Groups failures by the changed files that can be their cause, and then by their worst mismatch.

    Args:
        failures: the failures.
        files_of: returns the changed files that a family's parsers run.
    """
    by_files: dict[tuple[str, ...], list[ShownFailure]] = {}
    for failure in failures:
        by_files.setdefault(files_of(failure.family), []).append(failure)
    causes = [Cause(files=files, kinds=_kinds(alike)) for files, alike in by_files.items()]
    return tuple(sorted(causes, key=lambda cause: (_badness(cause.kinds[0]), -cause.cases)))


def _kinds(failures: Sequence[ShownFailure]) -> tuple[FailureKind, ...]:
    by_kind: dict[tuple[str, str], list[ShownFailure]] = {}
    for failure in failures:
        error = failure.actual.error if failure.mismatch.startswith("error") else ""
        by_kind.setdefault((failure.mismatch, error), []).append(failure)
    kinds = (_kind(alike) for alike in by_kind.values())
    return tuple(sorted(kinds, key=lambda kind: (_badness(kind), -sum(kind.cases.values()))))


def _kind(failures: Sequence[ShownFailure]) -> FailureKind:
    example = min(failures, key=_size)
    return FailureKind(
        mismatch=example.mismatch,
        title=example.title,
        severity=example.severity,
        cases=dict(Counter(failure.family for failure in failures).most_common()),
        example=example,
    )


def _size(failure: ShownFailure) -> tuple[bool, bool, int, int]:
    """The simplest failure has one right answer, parts visibly from it, and is short."""
    return bool(failure.expected.rule), failure.parting is None, len(failure.text), len(failure.steps)


def _badness(kind: FailureKind) -> int:
    ranks: dict[str, int] = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    return ranks.get(kind.severity, len(ranks))
