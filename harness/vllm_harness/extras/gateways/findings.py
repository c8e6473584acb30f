"""The differences between a server and a gateway over all cases, each with the exchanges that show it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vllm_harness._protocol.core.findings import Finding, Severity

_NUMBER = re.compile(r"\d+")
_ORDER = list(Severity)


@dataclass(frozen=True)
class GatewayDifference:
    """A finding, and the exchanges that show it.

    Attributes:
        finding: the finding as the first of these exchanges shows it.
        names: the names of the exchanges.
    """

    finding: Finding
    names: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The difference for `--json`."""
        finding = self.finding
        shown = ("code", "severity", "path", "kind", "message", "expected", "actual", "known")
        return {**{name: getattr(finding, name) for name in shown}, "cases": list(self.names)}


def merge_findings(findings: Iterable[tuple[str, Finding]]) -> list[GatewayDifference]:
    """Merges findings of one API with the same rule and path; sorts errors first, then by code.

    Args:
        findings: the findings, each with the name of its exchange.
    """
    merged: dict[tuple[str, ...], tuple[Finding, dict[str, None]]] = {}
    for name, finding in findings:
        api = name.partition("/")[0]
        key = (
            api,
            finding.code,
            finding.severity,
            _NUMBER.sub("*", finding.path),
            finding.kind,
            finding.known,
        )
        merged.setdefault(key, (finding, {}))[1].setdefault(name)
    differences = [GatewayDifference(finding, tuple(names)) for finding, names in merged.values()]
    return sorted(differences, key=lambda each: (_ORDER.index(each.finding.severity), each.finding.code))
