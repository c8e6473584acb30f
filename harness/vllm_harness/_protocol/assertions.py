"""Assertions for tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from vllm_harness._protocol.core.events import AnyEvent, Api
from vllm_harness._protocol.core.findings import Finding, Severity
from vllm_harness._protocol.core.tree import draw
from vllm_harness._protocol.known import KnownDeviation, apply_known
from vllm_harness._protocol.streams import validate_stream


def assert_valid_stream(
    events: Iterable[AnyEvent],
    *,
    api: Api | None = None,
    request: Mapping[str, Any] | None = None,
    resumed: bool | None = None,
    severity: Severity = Severity.ERROR,
    ignore: Collection[str] = (),
    known: Sequence[KnownDeviation] = (),
    version: str = "0",
) -> list[Finding]:
    """Fails unless a stream is valid; the message draws the stack with each finding at its place.

    Args:
        events: event objects of the openai SDK, dicts, or SSEEvents.
        api: "responses", "chat" or "messages"; None judges by the first event.
        request: the request body, when it is known; more can be checked then.
        resumed: it begins in the middle (`starting_after`); None judges by its first event.
        severity: what fails: errors only, or warnings too, or information too.
        ignore: codes that do not fail.
        known: known deviations; a finding that is one of them does not fail.
        version: version of the server, for `known`.

    Returns:
        All findings, those that do not fail included.

    Raises:
        AssertionError: there are findings that fail.
    """
    seen = list(events)
    findings = apply_known(validate_stream(seen, api=api, request=request, resumed=resumed), known, version)
    fatal = tuple(Severity)[: tuple(Severity).index(severity) + 1]
    failing = [
        finding
        for finding in findings
        if finding.severity in fatal and not finding.known and finding.code not in ignore
    ]
    if failing:
        codes = ", ".join(sorted({finding.code for finding in failing}))
        title = f"{len(failing)} findings in a stream of {len(seen)} events ({codes})"
        help_line = f"vllm-harness validate explain {failing[0].code}"
        raise AssertionError("\n\n".join((title, draw(seen, failing), help_line)))
    return findings
