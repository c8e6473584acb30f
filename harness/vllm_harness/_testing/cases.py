"""Makes the case and target records of a run folder from pytest's reports and the targets' results."""

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
"""The attribute of a test's last report with additional data for its case record, as JSON values."""
LONGEST = 100_000
"""The maximum number of characters of a failure in a case record."""
_WORST_FIRST = ("error", "failed", "xfailed", MISSED, "skipped", "passed")
"""The outcomes of reports, the worst first."""


@dataclass(frozen=True)
class Noted:
    """A finding, and the id of the response, completion or message in which it was found."""

    finding: Finding
    answer: str = ""


NOTED = pytest.StashKey[list[Noted]]()


def note(item: pytest.Item, findings: Iterable[Finding], answer: str = "") -> None:
    """Stores findings for a test's case record."""
    item.stash.setdefault(NOTED, []).extend(Noted(finding, answer) for finding in findings)


def facts_of(item: pytest.Item, exchange_of: Callable[[Noted], str]) -> dict[str, Any]:
    """The data for a test's case record that its reports lack, as JSON values."""
    findings = [RunFinding.of(noted.finding, exchange_of(noted)) for noted in item.stash.get(NOTED, [])]
    return {
        "covers": list(dict.fromkeys(str(id) for mark in item.iter_markers("covers") for id in mark.args)),
        "findings": [finding.model_dump(exclude_defaults=True) for finding in dict.fromkeys(findings)],
    }


def case_id(nodeid: str, target: str) -> str:
    """A test's id without its target, but with its seed, so that runs and targets can be compared."""
    for with_target, without in ((f"[{target}]", ""), (f"[{target}-", "["), (f"-{target}]", "]")):
        nodeid = nodeid.replace(with_target, without)
    return nodeid


def group_of(nodeid: str) -> str:
    """The name of the test module, as a report's matrix shows it."""
    return nodeid.partition("::")[0].removeprefix("tests/").removesuffix(".py")


def case_of(reports: Sequence[pytest.TestReport]) -> CaseRecord:
    """Makes the case record of a test from the reports of all its attempts."""
    target: str = getattr(reports[0], TARGET_OF)
    nodeid = reports[0].nodeid
    kinds = [(kind, report) for report in reports if (kind := outcome_of(report))]
    last = [(kind, report) for kind, report in kinds if kind != "rerun"]
    kind, decisive = min(last, key=lambda pair: _WORST_FIRST.index(pair[0]), default=("", reports[-1]))
    facts: dict[str, Any] = next(
        (stored for report in reversed(reports) if (stored := getattr(report, CASE_OF, None))), {}
    )
    findings = tuple(RunFinding(**fields) for fields in facts.get("findings", ()))
    explaining, reason = _defects_and_reason(kind, decisive)
    failure = (RunFinding(message=reason),) if kind in ("error", "failed") else ()
    # only a raised error decides the outcome: a test that passed with known findings is not `known`
    outcome = case_outcome(
        failure, defects=explaining, cancelled=not kind, skipped=kind in ("skipped", MISSED)
    )
    defects = (*explaining, *(finding.known for finding in findings if finding.known))
    if failure and not any(finding.counts for finding in findings):
        findings = (*findings, *failure)
    starts = [start for report in reports if (start := getattr(report, "start", None))]
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
        seconds=round(sum(report.duration for report in reports), 4),
        attempts=1 + sum(kind == "rerun" for kind, _ in kinds),
    )


def _defects_and_reason(kind: str, report: pytest.TestReport) -> tuple[list[str], str]:
    """The known defect that a test showed, if any, and why the test did not pass."""
    if kind == "xfailed":
        defect, shown = getattr(report, DEFECT_OF)
        return [defect], one_line(shown)
    if kind == "skipped" and isinstance(report.longrepr, tuple):
        return [], one_line(report.longrepr[2].removeprefix("Skipped: "))
    if kind == "passed":
        return [], ""
    if kind == MISSED:
        return [], f"the model's words were not the expected ones: {reason_of(report)}"
    return [], reason_of(report) if kind else "it was interrupted"


def _details(report: pytest.TestReport) -> str:
    parts = [report.longreprtext, *(f"--- {title} ---\n{text}" for title, text in report.sections)]
    text = "\n".join(parts)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n... {len(text) - LONGEST} characters more"


@dataclass(eq=False)  # pytest keeps plugins in sets
class CaseWriter:
    """A pytest plugin that writes each test's case record, and each target's record with its first case.

    Attributes:
        writer: writes records into the run folder.
        targets: the targets of the run.
        result: returns the result of a target, given its id.
    """

    writer: RunWriter
    targets: Sequence[Target]
    result: Callable[[str], TargetResult]
    _reports: dict[str, list[pytest.TestReport]] = field(default_factory=dict)
    _written: dict[str, records.TargetRecord] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Stores a report until its test ends."""
        if hasattr(report, TARGET_OF):
            self._reports.setdefault(report.nodeid, []).append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Writes a test's case record."""
        if reports := self._reports.pop(nodeid, None):
            case = case_of(reports)
            self._write_target(case.target)
            self.writer.write(case)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Writes the records of interrupted tests, and those of targets that have changed."""
        for nodeid in list(self._reports):
            self.pytest_runtest_logfinish(nodeid)
        for target in list(self._written):
            self._write_target(target)

    def _write_target(self, name: str) -> None:
        target = next(target for target in self.targets if target.id == name)
        record = target_record(target, self.result(name))
        if self._written.get(name) != record:
            self._written[name] = record
            self.writer.write(record)


def target_record(target: Target, result: TargetResult) -> records.TargetRecord:
    """The record of a target, with what is known about its server so far."""
    entry = target.entry
    record = result.server or records.TargetRecord(
        id=target.id, title=entry.name, family=entry.family, lane=target.lane
    )
    return record.model_copy(update={"logs": tuple(result.logs), "startup_s": result.startup_s})
