"""Checks of fields and token counts that all APIs share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vllm_harness._protocol.core.findings import ABSENT, brief
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.core.rule import Rule
from vllm_harness._protocol.core.types import NULL, Fields, Types

_TYPE_NAMES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    NULL: "null",
}


def type_names(types: Types) -> str:
    """The JSON names of the types of a field."""
    return " or ".join(_TYPE_NAMES[kind] for kind in types)


def check_fields(
    report: Report,
    value: Mapping[str, Any],
    fields: Fields,
    path: str,
    missing: Rule,
    wrong: Rule,
    kind: str = "",
) -> None:
    """Checks that an object has its required fields, with the right types.

    Args:
        report: collects the findings.
        value: the object.
        fields: the required fields.
        path: the JSON path of the object.
        missing: the rule for an absent field; its message may name the `key`.
        wrong: the rule for a field of the wrong type; its message may name the `key`.
        kind: the type of the object, for messages that name it.
    """
    for key, types in fields:
        actual = value.get(key, ABSENT)
        if type(actual) not in types:
            rule = missing if actual is ABSENT else wrong
            report.add(rule, f"{path}.{key}", type_names(types), brief(actual), key=key, kind=kind)


def is_json_object(text: str) -> bool:
    """Whether a string is a valid JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def check_token_counts(
    report: Report, usage: Mapping[str, Any], path: str, prompt: str, answer: str, total: Rule, part: Rule
) -> None:
    """Checks that token counts are not negative and add up, and that no subcount exceeds its total.

    Args:
        report: collects the findings.
        usage: the object with the counts.
        path: the JSON path of that object.
        prompt: the field with the tokens of the prompt.
        answer: the field with the tokens of the answer.
        total: the rule for a wrong total and for a negative count.
        part: the rule for a subcount that exceeds its total.
    """
    first, second, whole = usage.get(prompt), usage.get(answer), usage.get("total_tokens")
    if isinstance(first, int) and isinstance(second, int) and isinstance(whole, int):
        if whole != first + second:
            report.add(total, f"{path}.total_tokens", str(first + second), str(whole))
        for key in (prompt, answer):
            if usage[key] < 0:
                report.add(total, f"{path}.{key}", ">= 0", str(usage[key]))
    for key, field in (("cached_tokens", prompt), ("reasoning_tokens", answer)):
        details, limit = usage.get(f"{field}_details"), usage.get(field)
        count = details.get(key) if isinstance(details, dict) else None
        if isinstance(count, int) and isinstance(limit, int) and not 0 <= count <= limit:
            report.add(part, f"{path}.{field}_details.{key}", f"0 to {limit}", str(count))
