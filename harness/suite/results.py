"""Results: what a run has seen of each target, as JSON beside the logs and as a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from harness.endpoint import API_PATHS
from harness.protocol import Finding
from harness.suite import quality, repeats
from harness.targets import Target

COUNTED = {
    "passed": ("passed",),
    "failed": ("failed", "error"),
    "skipped": ("skipped",),
    "defects": ("xfailed",),
    "retries": ("rerun",),
}
MISSED = "missed"  # of a repeated test, where the model said otherwise: a figure, not a failure
_PLAIN = (
    "environment",
    "vllm",
    "startup_s",
    "restarts",
    "logs",
    "outcomes",
    "tests",
    "skips",
    "defects",
    "gone",
)


@dataclass
class TargetResult:
    """What a run has seen of one target.

    Attributes:
        environment, vllm: the server's environment, in full and short.
        version: version of a server that somebody else started.
        startup_s: seconds until it was ready.
        restarts: how often it was started anew after it had died.
        logs: its log files.
        lacking: APIs that it does not serve.
        known: references of the known deviations that were seen.
        outcomes: number of tests by outcome; `rerun` counts attempts that were tried again.
        tests: what became of each test, in the order of the run.
        skips: number of skips by reason code.
        defects: known defects that were seen: reference -> tests.
        findings: one finding of each code and path.
        gone: known deviations that were exercised and did not occur.
        trials: with --repeat: case -> seed -> whether it passed.
        tally: tool calls of the live lane.
        reference: decisions to call that they are held against.
    """

    environment: str = ""
    vllm: str = ""
    version: str = "0"
    startup_s: float | None = None
    restarts: int = 0
    logs: list[str] = field(default_factory=list)
    lacking: frozenset[str] = frozenset()
    known: set[str] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    tests: dict[str, str] = field(default_factory=dict)
    skips: Counter[str] = field(default_factory=Counter)
    defects: dict[str, list[str]] = field(default_factory=dict)
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    trials: dict[str, dict[int, bool]] = field(default_factory=dict)
    tally: quality.Tally = field(default_factory=quality.Tally)
    reference: quality.Decisions | None = None

    def add(self, findings: Iterable[Finding]) -> None:
        """Takes in what a test's checks have found."""
        for finding in findings:
            self.findings.setdefault((finding.code, finding.path), finding)
            if finding.known:
                self.known.add(finding.known)

    def as_json(self) -> dict[str, Any]:
        """For results.json."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "lacking": sorted(self.lacking),
            "known": sorted(self.known),
            "repeats": repeats.summary(self.trials),
            "quality": quality.summary(self.tally, self.reference),
        }

    def counts(self) -> dict[str, int]:
        """Number of tests by column of the table."""
        return {column: sum(self.outcomes[kind] for kind in kinds) for column, kinds in COUNTED.items()}


def outcome_of(report: pytest.TestReport) -> str | None:
    """What a report adds to the counts; None for a phase that adds nothing."""
    if report.outcome in ("rerun", MISSED):
        return report.outcome
    if report.when == "call":
        if hasattr(report, "wasxfail"):
            return "xfailed" if report.skipped else "failed"
        return report.outcome
    if report.failed:
        return "error"
    return "skipped" if report.when == "setup" and report.skipped else None


def write(results: Mapping[str, TargetResult], path: Path) -> None:
    """Keeps the results as JSON."""
    path.write_text(json.dumps({name: result.as_json() for name, result in results.items()}, indent=2))


def show(
    console: Console, targets: Iterable[Target], results: Mapping[str, TargetResult], folder: Path
) -> None:
    """Prints the table, one row a target, and below it what needs words."""
    table = Table(title="vLLM servers", title_justify="left")
    for heading in ("model", "lane", "vLLM", "start", *COUNTED, "restarts", "known"):
        left = heading in {"model", "lane", "vLLM"}
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for target in targets:
        if result := results.get(target.id):
            table.add_row(*_row(target, result))
    console.print()
    console.print(table)
    for target_id, result in results.items():
        if summed := repeats.summary(result.trials):
            console.print(repeats.table(target_id, summed))
    for line in _lines(results):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"logs and results: {folder}", highlight=False, soft_wrap=True)


def _row(target: Target, result: TargetResult) -> list[str]:
    counts = result.counts()
    bad = counts["failed"] or result.gone
    colour = "red" if bad else "green" if counts["passed"] else "yellow"
    start = "-" if result.startup_s is None else f"{result.startup_s:.1f} s"
    return [
        f"[{colour}]{target.entry.name}[/]",
        target.lane,
        result.vllm,
        start,
        *map(str, counts.values()),
        str(result.restarts),
        str(len(result.known)),
    ]


def _lines(results: Mapping[str, TargetResult]) -> list[str]:
    every = list(results.values())
    lines = [f"server environment: {each}" for each in dict.fromkeys(result.environment for result in every)]
    lines += [
        f"not served, so not tested: {API_PATHS[name]}"
        for name in sorted({name for result in every for name in result.lacking})
    ]
    lines += [
        f"known deviation seen: {known}"
        for known in sorted({known for each in every for known in each.known})
    ]
    for target, result in results.items():
        lines += [f"{target}: skipped [{code}]: {count}" for code, count in sorted(result.skips.items())]
        lines += [
            f"{target}: known defect {reference}: {', '.join(tests)}"
            for reference, tests in sorted(result.defects.items())
        ]
        lines += [f"{target}: {gone}" for gone in result.gone]
        if summed := quality.summary(result.tally, result.reference):
            lines.append(f"{target}: {quality.line(summed)}")
    return lines
