"""Decides how pytest's reports count, and counts them by target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import pytest

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import Defects, find
from vllm_harness._testing import skips
from vllm_harness._testing.content import UnexpectedContent
from vllm_harness._testing.defects import DEFECT_OF, DefectShown, expect, is_shown, judge
from vllm_harness._testing.results import MISSED, TargetResult, outcome_of, reason_of

TARGET_OF = "vllm_harness_target"
TRIAL_OF = "vllm_harness_trial"


class ReportRecorder:
    """A pytest plugin that counts the reports of tests, using the attributes that `hooks` has set on them.

    Args:
        result: returns the result of a target, given its id.
    """

    def __init__(self, result: Callable[[str], TargetResult]) -> None:
        self._result = result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts a report; pytest-rerunfailures has marked it by now if the test runs again."""
        target = getattr(report, TARGET_OF, None)
        kind = outcome_of(report)
        if target is None or kind is None:
            return
        result = self._result(target)
        result.outcomes[kind] += 1
        result.tests[report.nodeid] = kind
        if (trial := getattr(report, TRIAL_OF, None)) and kind != "skipped":
            case, seed = trial
            seeds = result.trials.setdefault(case, {})
            seeds[seed] = kind == "passed" and seeds.get(seed, True)
        if report.failed:
            result.failures.setdefault(report.nodeid, reason_of(report))
        if kind == "skipped":
            reason = report.longrepr[2].removeprefix("Skipped: ")  # type: ignore[index]
            result.skips[skips.code_of(reason) or "none"] += 1
            result.skipped.setdefault(reason, []).append(report.nodeid)
        if kind == "xfailed":
            defect_id, shown = getattr(report, DEFECT_OF)
            result.defects.setdefault(defect_id, {})[report.nodeid] = shown


def settle(
    report: pytest.TestReport,
    raised: BaseException | None,
    known: Sequence[Defect],
    defects: Defects,
    expected_skips: Collection[str],
    repeated: bool,
) -> None:
    """Sets the outcome of a report on a target's test: known defects, skips, pytest's own xfail, misses."""
    if hasattr(report, "wasxfail"):
        fail(report, "an expected failure without a reference: mark the test vllm_known_defect(...) instead")
    elif report.skipped and isinstance(report.longrepr, tuple):
        if objection := skips.objection(report.longrepr[2], expected_skips):
            fail(report, objection)
    elif isinstance(raised, DefectShown):
        expect(report, raised, find(raised.defect_id, defects))
    elif known and report.when == "call":
        judge(report, raised, known)
    elif repeated and report.when == "call" and isinstance(raised, UnexpectedContent):
        report.outcome = MISSED  # type: ignore[assignment]


def is_expected(call: pytest.CallInfo[None], known: Sequence[Defect]) -> bool:
    """Whether a phase of a test shows a known defect, so that `settle` will expect its failure."""
    if call.excinfo is None:
        return False
    raised = call.excinfo.value
    shown = call.when == "call" and any(is_shown(defect, raised) for defect in known)
    return shown or isinstance(raised, DefectShown)


@contextmanager
def plain_traceback(config: pytest.Config, plain: bool) -> Iterator[None]:
    """If `plain`, reports failures with Python's own traceback; pytest's is slower, as it parses files."""
    style = config.option.tbstyle
    config.option.tbstyle = "native" if plain else style
    try:
        yield
    finally:
        config.option.tbstyle = style


def fail(report: pytest.TestReport, why: str) -> None:
    """Turns a report into a failure with this reason."""
    report.outcome, report.longrepr = "failed", why
    if hasattr(report, "wasxfail"):
        del report.wasxfail
