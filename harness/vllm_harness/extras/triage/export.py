"""Exports defects as upstream reports: a folder for each defect, and an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vllm_harness._defects.entry import Defect, Severity
from vllm_harness._defects.repro.reproducer import checked
from vllm_harness._defects.repro.verdict import Measured
from vllm_harness.extras.triage.files import files_of
from vllm_harness.extras.triage.severity import SEVERITIES, severity_of

REPORT, SCRIPT, INDEX = "README.md", "reproduce.py", "index.md"


def export(reproduced: Sequence[tuple[Defect, Measured]], environment: str, into: Path) -> list[Path]:
    """Writes a folder for each defect, with its report and its script, and an index.

    Args:
        reproduced: the defects, each with the measurement that reproduced it.
        environment: a description of the vLLM that showed them.
        into: the folder; created if it does not exist.

    Returns:
        The folders of the defects.
    """
    folders = []
    for defect, measured in reproduced:
        folder = into / defect.id
        folder.mkdir(parents=True, exist_ok=True)
        files = files_of(checked(defect), measured.outcome, environment)
        (folder / REPORT).write_text(files.report)
        (folder / SCRIPT).write_text(files.script)
        folders.append(folder)
    (into / INDEX).write_text("\n".join(_index([defect for defect, _ in reproduced], environment)) + "\n")
    return folders


def _index(defects: Iterable[Defect], environment: str) -> Iterator[str]:
    by_severity: dict[Severity, list[Defect]] = {}
    for defect in sorted(defects, key=lambda defect: (_file(defect), defect.id)):
        by_severity.setdefault(severity_of(defect), []).append(defect)
    yield f"# Defects of {environment}\n"
    for severity in filter(by_severity.get, SEVERITIES):
        yield f"\n## {severity.capitalize()}\n"
        yield "| component | defect | upstream | what goes wrong |\n|---|---|---|---|"
        for defect in by_severity[severity]:
            upstream = defect.upstream.reference or "not reported"
            title = defect.title.replace("|", "\\|")
            yield f"| `{_file(defect)}` | [{defect.id}]({defect.id}/{REPORT}) | {upstream} | {title} |"


def _file(defect: Defect) -> str:
    return defect.component[0].split(":")[0] if defect.component else "?"
