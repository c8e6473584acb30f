"""Findings: what a rule says about one place of a stream or a body."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_FINDINGS = 1000
_SHOWN = 160


class Severity(StrEnum):
    """error: breaks the contract. warning: a client may trip over it. info: worth knowing, not a fault."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One deviation.

    Attributes:
        code: code of the rule (`vllm-harness explain CODE`).
        severity: how bad.
        event_index: index of the event from 0; None for a body or a whole conversation.
        path: JSON path within the event or the body.
        message: one sentence.
        expected: what the contract wants there, as text.
        got: what stood there, as text.
        context: the events up to and including this one, one line each.
        known: reference of the known deviation it belongs to; empty where there is none.
    """

    code: str
    severity: Severity
    event_index: int | None
    path: str
    message: str
    expected: str = ""
    got: str = ""
    context: tuple[str, ...] = ()
    known: str = ""

    @property
    def counts(self) -> bool:
        """Whether the finding is an error or a warning that nobody has declared known."""
        return self.severity is not Severity.INFO and not self.known

    @property
    def told(self) -> str:
        """The finding without where it is: code, severity, path, message, expected and got."""
        sides = [f"{name} {text}" for name, text in (("expected", self.expected), ("got", self.got)) if text]
        difference = f" ({', '.join(sides)})" if sides else ""
        known = f" [known: {self.known}]" if self.known else ""
        return f"{self.code} {self.severity} {self.path}: {self.message}{difference}{known}"

    def __str__(self) -> str:
        return self.told if self.event_index is None else f"event {self.event_index}: {self.told}"


class Absent:
    """The value of a field that is not there."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = Absent()


def brief(value: object) -> str:
    """A value as short JSON text."""
    if value is ABSENT:
        return "nothing"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 3 :]}"


def describe(event: Mapping[str, Any]) -> str:
    """An event in one line: its type and what places it."""
    places = [
        f"{key}={brief(event[key])}"
        for key in ("sequence_number", "output_index", "content_index", "summary_index", "item_id", "delta")
        if key in event
    ]
    return " ".join([str(event.get("type") or event.get("object") or "event"), *places])


class Report:
    """Collects findings at the current event.

    Args:
        severities: severity of each code.
        limit: findings kept; those beyond are counted, not kept.
    """

    def __init__(self, severities: Mapping[str, Severity], limit: int = MAX_FINDINGS) -> None:
        self.findings: list[Finding] = []
        self.dropped = 0
        self.index: int | None = None
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=3)
        self._severities = severities
        self._limit = limit
        self._once: set[Hashable] = set()

    def add(
        self,
        code: str,
        message: str,
        path: str = "$",
        expected: str = "",
        got: object = "",
        severity: Severity | None = None,
        once: Hashable = None,
    ) -> None:
        """Adds a finding at the current event.

        Args:
            code: code of its rule.
            message: one sentence.
            path: JSON path within the event.
            expected: what the contract wants, as text.
            got: what stands there: text that is already brief, or any other JSON value.
            severity: where it differs from the rule's.
            once: of all findings with this code and this key only the first is kept.
        """
        if len(self.findings) >= self._limit:
            self.dropped += 1
            return
        if once is not None:
            if (code, once) in self._once:
                return
            self._once.add((code, once))
        self.findings.append(
            Finding(
                code,
                severity or self._severities[code],
                self.index,
                path,
                message,
                expected,
                got if isinstance(got, str) else brief(got),
                tuple(map(describe, self.recent)),
            )
        )
