"""Defects as a folder of reports to file: one folder each, and an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vllm_harness._defects.entry import Defect, Severity
from vllm_harness._defects.repro.measured import Measured
from vllm_harness._defects.repro.reproducer import checked
from vllm_harness._defects.repro.severity import SEVERITIES, severity_of

REPORT, SCRIPT, INDEX = "README.md", "reproduce.py", "index.md"


def export(reproduced: Sequence[tuple[Defect, Measured]], environment: str, into: Path) -> list[Path]:
    """Writes a folder for each defect, with its report and its script, and the index of all.

    Args:
        reproduced: the defects, each with the verdict `reproduced` of one vLLM.
        environment: that vLLM, in words.
        into: the folder; made where it is not there.

    Returns:
        The folders.
    """
    folders = []
    for defect, measured in reproduced:
        folder = into / defect.id
        folder.mkdir(parents=True, exist_ok=True)
        files = checked(defect).files(measured.outcome, environment)
        (folder / REPORT).write_text(files.report)
        (folder / SCRIPT).write_text(files.script)
        folders.append(folder)
    (into / INDEX).write_text("\n".join(_index([defect for defect, _ in reproduced], environment)) + "\n")
    return folders


def _index(defects: Iterable[Defect], environment: str) -> Iterator[str]:
    by_severity: dict[Severity, list[Defect]] = {}
    for each in sorted(defects, key=lambda each: (_file(each), each.id)):
        by_severity.setdefault(severity_of(each), []).append(each)
    yield f"# Defects of {environment}\n"
    for severity in filter(by_severity.get, SEVERITIES):
        yield f"\n## {severity.capitalize()}\n"
        yield "| component | defect | upstream | what goes wrong |\n|---|---|---|---|"
        for each in by_severity[severity]:
            upstream = each.upstream.reference or "not reported"
            title = each.title.replace("|", "\\|")
            yield f"| `{_file(each)}` | [{each.id}]({each.id}/{REPORT}) | {upstream} | {title} |"


def _file(defect: Defect) -> str:
    return defect.component[0].split(":")[0] if defect.component else "?"
