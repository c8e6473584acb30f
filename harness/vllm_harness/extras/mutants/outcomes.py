"""The outcome of a test on a mutant, from pytest's reports."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from vllm_harness._testing.defects import DEFECT_GONE
from vllm_harness.extras.review.coverage import Outcome


class OutcomePlugin:
    """The base class of pytest plugins that record the outcome of each test."""

    def __init__(self) -> None:
        self._reports: list[pytest.TestReport] = []

    def record(self, item: pytest.Item, outcome: Outcome, reports: Sequence[pytest.TestReport]) -> None:
        """Records the outcome of a test that has just run."""
        raise NotImplementedError

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a report to those of the running test."""
        self._reports.append(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Records the outcome of the test, if it has one."""
        self._reports = []
        result = yield
        if outcome := outcome_of(self._reports):
            self.record(item, outcome, self._reports)
        return result


def outcome_of(reports: Sequence[pytest.TestReport]) -> Outcome | None:
    """The outcome of a test; None if pytest reported none.

    The outcome is `gone` if a test that should show a known defect passed: the defect no longer shows.
    """
    outcome: Outcome | None = None
    for report in reports:
        if report.failed:
            return "gone" if getattr(report, DEFECT_GONE, False) else "failed"
        if report.skipped:
            outcome = "known" if hasattr(report, "wasxfail") else "skipped"
        elif report.when == "call":
            outcome = "passed"
    return outcome


def why(reports: Sequence[pytest.TestReport]) -> str:
    """The first 400 characters of the first failure's message, on one line; empty without a failure."""
    for report in reports:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else report.longreprtext
            return " ".join(text.split())[:400]
    return ""
