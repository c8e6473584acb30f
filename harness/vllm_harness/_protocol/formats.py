"""Formats findings as text, JSON, SARIF or GitHub annotations."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from vllm_harness._protocol.core.findings import Finding, Severity
from vllm_harness._protocol.rules import RULES

_SARIF_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_GITHUB_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


class PlacedFinding(NamedTuple):
    """A finding with its file and line."""

    file: str
    line: int
    finding: Finding


def as_text(findings: Sequence[PlacedFinding]) -> str:
    """One line for each finding, then the counts by severity."""
    lines = [f"{placed.file}:{placed.line}: {placed.finding}" for placed in findings]
    counts = [
        f"{sum(placed.finding.severity is severity for placed in findings)} {severity}"
        for severity in Severity
    ]
    return "\n".join([*lines, ", ".join(counts)])


def as_json(findings: Sequence[PlacedFinding]) -> str:
    """A JSON array with an object for each finding."""
    values = [{"file": placed.file, "line": placed.line, **asdict(placed.finding)} for placed in findings]
    return json.dumps(values, indent=1)


def as_github(findings: Sequence[PlacedFinding]) -> str:
    """Workflow commands that GitHub shows as annotations."""
    return "\n".join(
        workflow_command(
            _GITHUB_LEVEL[finding.severity], str(finding), file=file, line=str(line), title=finding.code
        )
        for file, line, finding in findings
    )


def workflow_command(name: str, message: str, **properties: str) -> str:
    """A GitHub workflow command, with its message and properties escaped."""
    arguments = ",".join(f"{key}={_escaped(value, ',:')}" for key, value in properties.items())
    return f"::{name}{f' {arguments}' if arguments else ''}::{_escaped(message)}"


def _escaped(text: str, separators: str = "") -> str:
    for character in f"%\r\n{separators}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def as_sarif(findings: Sequence[PlacedFinding]) -> str:
    """SARIF 2.1.0, for code scanning."""
    codes = sorted({placed.finding.code for placed in findings})
    rules = [
        {
            "id": code,
            "shortDescription": {"text": RULES[code].title},
            "fullDescription": {"text": RULES[code].why},
            "defaultConfiguration": {"level": _SARIF_LEVEL[RULES[code].severity]},
        }
        for code in codes
    ]
    driver = {"name": "vllm-harness", "rules": rules}
    results = [_sarif_result(placed) for placed in findings]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=1)


def _sarif_result(placed: PlacedFinding) -> dict[str, Any]:
    finding = placed.finding
    return {
        "ruleId": finding.code,
        "level": _SARIF_LEVEL[finding.severity],
        "message": {"text": str(finding)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": placed.file},
                    "region": {"startLine": placed.line},
                },
                "logicalLocations": [{"fullyQualifiedName": finding.path}],
            }
        ],
    }


FORMATS: dict[str, Callable[[Sequence[PlacedFinding]], str]] = {
    "text": as_text,
    "json": as_json,
    "sarif": as_sarif,
    "github": as_github,
}
