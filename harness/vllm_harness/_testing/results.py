"""The results of a run by target, which are written as JSON next to the logs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._protocol import Finding
from vllm_harness._runs.records import TargetRecord
from vllm_harness._terminal.tables import one_line
from vllm_harness._testing import quality, repeats

COUNTED = {
    "passed": ("passed",),
    "failed": ("failed", "error"),
    "skipped": ("skipped",),
    "known": ("xfailed",),
    "retries": ("rerun",),
}
MISSED = "missed"  # the outcome of a repeated test with unexpected content, which is not a failure
_OF_SERVER = ("environment", "vllm", "startup_s", "restarts", "logs")
_OF_TESTS = ("outcomes", "tests", "failures", "skips", "skipped", "defects", "gone")


@dataclass
class TargetResult:
    """The results of one target.

    Attributes:
        environment, vllm: a long and a short description of the server's environment.
        server: the target's record for a run folder; None until the server has been made.
        startup_s: the seconds until the server was ready; None if it has not started.
        restarts: how often the server was restarted after it had died.
        logs: the server's log files.
        lacking: the APIs that the server does not serve.
        known: the references of the known deviations that occurred.
        outcomes: the number of tests by outcome; `rerun` counts the attempts that were repeated.
        tests: the outcome of each test, in the order of the run.
        failures: the message of each test that failed, in one line.
        skips: the number of skips by reason code.
        skipped: the skipped tests, by the reason with its code.
        defects: the known defects that tests showed: id -> test -> how it failed.
        findings: one finding for each code and path.
        gone: messages about the known deviations that no longer occur.
        trials: with --vllm-repeat: case -> seed -> whether it passed.
        tally: counts of the tool calls on the live lane.
        reference: the reference run's decisions to make a call; None if this run is not compared with one.
    """

    environment: str = ""
    vllm: str = ""
    server: TargetRecord | None = None
    startup_s: float | None = None
    restarts: int = 0
    logs: list[str] = field(default_factory=list)
    lacking: frozenset[str] = frozenset()
    known: set[str] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    tests: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    skips: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    defects: dict[str, dict[str, str]] = field(default_factory=dict)
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    trials: dict[str, dict[int, bool]] = field(default_factory=dict)
    tally: quality.QualityTally = field(default_factory=quality.QualityTally)
    reference: quality.Decisions | None = None

    def add(self, findings: Iterable[Finding]) -> None:
        """Adds the findings of a test's checks."""
        for finding in findings:
            self.findings.setdefault((finding.code, finding.path), finding)
            if finding.known:
                self.known.add(finding.known)

    def as_json(self) -> dict[str, Any]:
        """The value for this target in results.json."""
        return {
            **{name: getattr(self, name) for name in (*_OF_SERVER, *_OF_TESTS)},
            "lacking": sorted(self.lacking),
            "known": sorted(self.known),
            "repeats": repeats.summary(self.trials),
            "quality": quality.summary(self.tally, self.reference),
        }

    def counts(self) -> dict[str, int]:
        """The number of tests by column of the table."""
        return {column: sum(self.outcomes[kind] for kind in kinds) for column, kinds in COUNTED.items()}


def outcome_of(report: pytest.TestReport) -> str | None:
    """The outcome that a report adds to the counts; None for a phase that adds no outcome."""
    if report.outcome in ("rerun", MISSED):
        return report.outcome
    if report.when == "call":
        if hasattr(report, "wasxfail"):
            return "xfailed" if report.skipped else "failed"
        return report.outcome
    if report.failed:
        return "error"
    return "skipped" if report.when == "setup" and report.skipped else None


def reason_of(report: pytest.TestReport) -> str:
    """The reason why a report is a failure, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(crash.message if crash else report.longrepr or "")
    return one_line(f"{report.when}: {message}" if report.when != "call" else message)


def write(results: Mapping[str, TargetResult], path: Path) -> None:
    """Writes the results as JSON."""
    path.write_text(json.dumps({name: result.as_json() for name, result in results.items()}, indent=2))
