"""Findings: violations of a rule in a stream or a body."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

_SHOWN = 160
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class Severity(StrEnum):
    """error: breaks the contract. warning: may break a client. info: worth knowing, not a fault."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One deviation from the contract.

    Attributes:
        code: the code of the rule (`vllm-harness validate explain CODE` describes it).
        severity: the severity of the deviation.
        event_index: the index of the event, from 0; None for a body or a whole conversation.
        path: the JSON path within the event or the body.
        message: a sentence that describes the deviation.
        expected: the value that the contract requires, as text.
        actual: the value at the path, as text.
        context: the last events up to this one, one line each.
        known: the reference of the known deviation that covers the finding; empty if there is none.
        kind: the `type` of the innermost object on the path, below the event or the body, such as
            `reasoning`; empty if none has a type.
    """

    code: str
    severity: Severity
    event_index: int | None
    path: str
    message: str
    expected: str = ""
    actual: str = ""
    context: tuple[str, ...] = ()
    known: str = ""
    kind: str = ""

    @property
    def counts(self) -> bool:
        """Whether the finding is an error or a warning that no known deviation covers."""
        return self.severity is not Severity.INFO and not self.known

    @property
    def text(self) -> str:
        """The finding without its event: code, severity, path, message, expected and actual."""
        sides = [
            f"{name} {text}" for name, text in (("expected", self.expected), ("actual", self.actual)) if text
        ]
        difference = f" ({', '.join(sides)})" if sides else ""
        known = f" [known: {self.known}]" if self.known else ""
        return f"{self.code} {self.severity} {self.path}: {self.message}{difference}{known}"

    def __str__(self) -> str:
        return self.text if self.event_index is None else f"event {self.event_index}: {self.text}"


class Absent:
    """The value of a missing field."""

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


def kind_at(value: object, path: str) -> str:
    """The `type` of the innermost object on a JSON path, except the root.

    Args:
        value: the root, `$`.
        path: a path such as `$.response.output[0].status`; steps that the value does not have are ignored.

    Returns:
        The type, such as `reasoning`; empty if no object on the path has one.
    """
    kind = ""
    for key, number in _STEP.findall(path):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and number and int(number) < len(value):
            value = value[int(number)]
        else:
            break
        if isinstance(value, dict) and isinstance(value.get("type"), str):
            kind = value["type"]
    return kind
