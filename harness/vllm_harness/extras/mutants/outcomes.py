"""What the reports of a test come to, where a mutant may have caused it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from vllm_harness._testing.defects import DEFECT_GONE
from vllm_harness.extras.review.coverage import Outcome


def outcome_of(reports: Sequence[pytest.TestReport]) -> Outcome | None:
    """The outcome of a test; None where it has no report.

    A test that is to show a known defect and passed is `gone`: no failure of what it states.
    """
    found: Outcome | None = None
    for report in reports:
        if report.failed:
            return "gone" if getattr(report, DEFECT_GONE, False) else "failed"
        if report.skipped:
            found = "known" if hasattr(report, "wasxfail") else "skipped"
        elif report.when == "call":
            found = "passed"
    return found


def why(reports: Sequence[pytest.TestReport]) -> str:
    """The end of the text of the first failure, on one line."""
    for report in reports:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else report.longreprtext
            return " ".join(text.split())[:400]
    return ""
