"""Reports a run as GitHub annotations: one workflow command per line.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_harness._protocol.formats import workflow_command
from vllm_harness._runs.records import CaseRecord, Outcome
from vllm_harness._runs.report.run import RecordedRun

SHOWN = 10
"""The number of errors that GitHub shows for a step."""


def github(run: RecordedRun) -> str:
    """Makes an error annotation for each failed case, up to the number that GitHub shows, and notices."""
    return "".join(f"{line}\n" for line in _commands(run))


def _commands(run: RecordedRun) -> Iterator[str]:
    failed = run.of(Outcome.FINDING)
    for case in failed[:SHOWN]:
        title = f"{run.title(case.target)}: {case.group or case.id}"
        yield workflow_command("error", _message(case), **_file(case), title=title)
    if len(failed) > SHOWN:
        yield workflow_command("notice", f"{len(failed) - SHOWN} more cases with findings; see the report")
    if known := len(run.of(Outcome.KNOWN)):
        yield workflow_command("notice", f"cases that fail only by known defects: {known}")
    if not_judged := len(run.of(Outcome.NOT_JUDGED)):
        yield workflow_command("warning", f"cases that were not judged: {not_judged}")
    if run.end is None:
        yield workflow_command("warning", "the run has no end: it was killed, or it is still running")


def _file(case: CaseRecord) -> dict[str, str]:
    file, separator, _ = case.id.partition("::")
    return {"file": file} if separator and file.endswith(".py") else {}


def _message(case: CaseRecord) -> str:
    findings = [
        f"{finding.code} {finding.path}: {finding.message}"
        for finding in case.findings
        if finding.code and not finding.known
    ]
    return "\n".join([case.id, case.reason, *findings])
