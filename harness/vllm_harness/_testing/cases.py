"""The cases and targets of a run folder: what pytest's reports, and the records of targets, come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from vllm_harness._configuration.targets import Target
from vllm_harness._protocol import Finding
from vllm_harness._runs import records
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import CaseRecord, RunFinding, case_outcome
from vllm_harness._terminal.tables import one_line
from vllm_harness._testing.defects import DEFECT_OF
from vllm_harness._testing.recorder import TARGET_OF
from vllm_harness._testing.results import MISSED, TargetResult, outcome_of, reason_of

CASE_OF = "vllm_harness_case"
"""Of a test's last report: what its case has beside the reports, as plain data."""
LONGEST = 100_000
"""Characters of a failure that are kept."""
_WORST_FIRST = ("error", "failed", "xfailed", "missed", "skipped", "passed")


@dataclass(frozen=True)
class Noted:
    """A finding, and the answer that it was found in: the id of a response, a completion or a message."""

    finding: Finding
    answer: str = ""


NOTED = pytest.StashKey[list[Noted]]()


def note(item: pytest.Item, findings: Iterable[Finding], answer: str = "") -> None:
    """Notes what was found in a test."""
    item.stash.setdefault(NOTED, []).extend(Noted(finding, answer) for finding in findings)


def facts_of(item: pytest.Item, exchange_of: Callable[[Noted], str]) -> dict[str, Any]:
    """What a test's case has beside its reports, as plain data, for the last of them."""
    findings = [RunFinding.of(each.finding, exchange_of(each)) for each in item.stash.get(NOTED, [])]
    return {
        "covers": list(dict.fromkeys(str(id) for mark in item.iter_markers("covers") for id in mark.args)),
        "findings": [each.model_dump(exclude_defaults=True) for each in dict.fromkeys(findings)],
    }


def case_id(nodeid: str, target: str) -> str:
    """A test's id without its target, so that runs and targets can be compared; a seed stays."""
    for written, short in ((f"[{target}]", ""), (f"[{target}-", "["), (f"-{target}]", "]")):
        nodeid = nodeid.replace(written, short)
    return nodeid


def group_of(nodeid: str) -> str:
    """The test module, as a matrix shows it."""
    return nodeid.partition("::")[0].removeprefix("tests/").removesuffix(".py")


def case_of(reports: Sequence[pytest.TestReport]) -> CaseRecord:
    """The case that the reports of one test, with all its attempts, come to."""
    target: str = getattr(reports[0], TARGET_OF)
    nodeid = reports[0].nodeid
    kinds = [(kind, report) for report in reports if (kind := outcome_of(report))]
    last = [(kind, report) for kind, report in kinds if kind != "rerun"]
    kind, decisive = min(last, key=lambda each: _WORST_FIRST.index(each[0]), default=("", reports[-1]))
    facts: dict[str, Any] = next(
        (found for each in reversed(reports) if (found := getattr(each, CASE_OF, None))), {}
    )
    findings = tuple(RunFinding(**each) for each in facts.get("findings", ()))
    explaining, reason = _explanation(kind, decisive)
    failure = (RunFinding(message=reason),) if kind in ("error", "failed") else ()
    # a test fails by what it raises: known findings that its checks met beside that do not make it known
    outcome = case_outcome(
        failure, defects=explaining, cancelled=not kind, skipped=kind in ("skipped", MISSED)
    )
    defects = (*explaining, *(finding.known for finding in findings if finding.known))
    if failure and not any(finding.counts for finding in findings):
        findings = (*findings, *failure)
    starts = [start for each in reports if (start := getattr(each, "start", None))]
    return CaseRecord(
        id=case_id(nodeid, target),
        target=target,
        group=group_of(nodeid),
        covers=tuple(facts.get("covers", ())),
        outcome=outcome,
        defects=tuple(dict.fromkeys(defects)),
        reason=reason,
        details=_details(decisive) if kind not in ("passed", "skipped") else "",
        findings=findings,
        started=min(starts, default=None),
        seconds=round(sum(each.duration for each in reports), 4),
        attempts=1 + sum(kind == "rerun" for kind, _ in kinds),
    )


def _explanation(kind: str, report: pytest.TestReport) -> tuple[list[str], str]:
    """The known defect that a test is to show and showed, and why the test did not pass."""
    if kind == "xfailed":
        defect, shown = getattr(report, DEFECT_OF)
        return [defect], one_line(shown)
    if kind == "skipped" and isinstance(report.longrepr, tuple):
        return [], one_line(report.longrepr[2].removeprefix("Skipped: "))
    if kind == "passed":
        return [], ""
    if kind == MISSED:
        return [], f"the model's words were others than expected: {reason_of(report)}"
    return [], reason_of(report) if kind else "it was broken off"


def _details(report: pytest.TestReport) -> str:
    parts = [report.longreprtext, *(f"--- {title} ---\n{text}" for title, text in report.sections)]
    text = "\n".join(parts)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n... {len(text) - LONGEST} characters more"


@dataclass(eq=False)  # pytest keeps plugins in sets
class CaseWriter:
    """A pytest plugin: writes each test's case when it has ended, and a target when it is first heard of.

    Attributes:
        writer: of the run.
        targets: those of the run.
        result: the record of a target, by its id.
    """

    writer: RunWriter
    targets: Sequence[Target]
    result: Callable[[str], TargetResult]
    _reports: dict[str, list[pytest.TestReport]] = field(default_factory=dict)
    _written: dict[str, records.TargetRecord] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps a report until its test has ended."""
        if hasattr(report, TARGET_OF):
            self._reports.setdefault(report.nodeid, []).append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Writes a test's case."""
        if reports := self._reports.pop(nodeid, None):
            case = case_of(reports)
            self._write_target(case.target)
            self.writer.write(case)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Writes what has become of the targets since, and the cases that were broken off."""
        for nodeid in list(self._reports):
            self.pytest_runtest_logfinish(nodeid)
        for target in list(self._written):
            self._write_target(target)

    def _write_target(self, name: str) -> None:
        target = next(each for each in self.targets if each.id == name)
        record = target_record(target, self.result(name))
        if self._written.get(name) != record:
            self._written[name] = record
            self.writer.write(record)


def target_record(target: Target, result: TargetResult) -> records.TargetRecord:
    """The record of a target, as far as it is known."""
    unknown = records.TargetRecord(
        id=target.id, title=target.entry.name, family=target.entry.family, lane=target.lane
    )
    every_start = {"logs": tuple(result.logs), "startup_s": result.startup_s}
    return (result.server or unknown).model_copy(update=every_start)
