"""The report, which collects the findings of one stream or body."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any

from vllm_harness._protocol.core.findings import Finding, Severity, brief, kind_at
from vllm_harness._protocol.core.rule import Rule

MAX_FINDINGS = 1000


class Report:
    """Collects findings at the current event.

    Args:
        limit: the maximum number of findings to keep; further ones are only counted.
    """

    def __init__(self, limit: int = MAX_FINDINGS) -> None:
        self.findings: list[Finding] = []
        self.dropped = 0
        self.index: int | None = None
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=3)
        self.body: Mapping[str, Any] | None = None
        self._limit = limit
        self._once: set[Hashable] = set()

    def add(
        self,
        rule: Rule,
        path: str = "$",
        expected: str = "",
        actual: object = "",
        severity: Severity | None = None,
        once: Hashable = None,
        **facts: object,
    ) -> None:
        """Adds a finding at the current event.

        Args:
            rule: the rule that is broken.
            path: the JSON path within the event.
            expected: the value that the contract requires, as text.
            actual: the value at the path, as a short string or as any other JSON value.
            severity: the severity, if it differs from that of the rule.
            once: a key; only the first finding of the rule with this key is kept.
            facts: the values for the placeholders in the message of the rule.
        """
        if len(self.findings) >= self._limit:
            self.dropped += 1
            return
        if once is not None:
            if (rule.code, once) in self._once:
                return
            self._once.add((rule.code, once))
        self.findings.append(
            Finding(
                rule.code,
                severity or rule.severity,
                self.index,
                path,
                rule.message_with(facts),
                expected,
                actual if isinstance(actual, str) else brief(actual),
                tuple(map(_line, self.recent)),
                kind=kind_at(self.recent[-1] if self.recent else self.body, path),
            )
        )


def _line(event: Mapping[str, Any]) -> str:
    """An event in one line: its type and its position in the stream."""
    places = [
        f"{key}={brief(event[key])}"
        for key in ("sequence_number", "output_index", "content_index", "summary_index", "item_id", "delta")
        if key in event
    ]
    return " ".join([str(event.get("type") or event.get("object") or "event"), *places])
