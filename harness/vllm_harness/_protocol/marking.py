"""Marks known findings, and reports known deviations that no longer occur."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from vllm_harness._protocol.core.findings import Finding
from vllm_harness._protocol.core.rules import KD101
from vllm_harness._protocol.known import KnownDeviation


def apply_known(
    findings: Iterable[Finding],
    deviations: Sequence[KnownDeviation],
    version: str,
    *,
    exercised: Collection[str] = (),
) -> list[Finding]:
    """Marks known findings, and reports deviations that no longer occur.

    One stream cannot show that a deviation is gone, since it may not exercise it. The caller collects the
    findings of a whole run and names the deviations that the run has exercised.

    Args:
        findings: the findings of one stream or of a whole run.
        deviations: the known deviations.
        version: the version of the server.
        exercised: the references of the deviations that the run has exercised.

    Returns:
        All findings, with `known` set if a deviation of this version covers them; then KD101 for every
        exercised deviation of this version that did not occur.

    Raises:
        ProtocolInputError: `version` is not a valid version.
    """
    expected = [deviation for deviation in deviations if deviation.holds_for(version)]
    seen: set[KnownDeviation] = set()
    marked = []
    for finding in findings:
        match = next((deviation for deviation in expected if deviation.covers(finding)), None)
        if match is not None:
            seen.add(match)
            finding = replace(finding, known=match.reference)
        marked.append(finding)
    gone = [known for known in expected if known.reference in exercised and known not in seen]
    return marked + [
        KD101.finding(
            known.path or "$",
            f"{known.code} on {known.versions or 'every version'}",
            "nothing",
            code=known.code,
            reference=known.reference,
            version=version,
        )
        for known in gone
    ]
