"""A run as GitHub annotations: workflow commands, a line each.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_harness._protocol.formats import workflow_command
from vllm_harness._runs.records import CaseRecord, Outcome
from vllm_harness._runs.report.run import RecordedRun

SHOWN = 10
"""GitHub shows so many errors of a step."""


def github(run: RecordedRun) -> str:
    """An error for each case with a finding, as many as GitHub shows, and a notice of the rest."""
    return "".join(f"{line}\n" for line in _commands(run))


def _commands(run: RecordedRun) -> Iterator[str]:
    found = run.of(Outcome.FINDING)
    for case in found[:SHOWN]:
        title = f"{run.title(case.target)}: {case.group or case.id}"
        yield workflow_command("error", _message(case), **_file(case), title=title)
    if len(found) > SHOWN:
        yield workflow_command("notice", f"{len(found) - SHOWN} more cases with findings; see the report")
    if run.end is None:
        yield workflow_command("warning", "the run has no end: it was killed, or it still goes on")


def _file(case: CaseRecord) -> dict[str, str]:
    file, separator, _ = case.id.partition("::")
    return {"file": file} if separator and file.endswith(".py") else {}


def _message(case: CaseRecord) -> str:
    findings = [
        f"{each.code} {each.path}: {each.message}" for each in case.findings if each.code and not each.known
    ]
    return "\n".join([case.id, case.reason, *findings])
