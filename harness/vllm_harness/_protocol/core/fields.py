"""Checks of fields and of token counts that the APIs share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vllm_harness._protocol.core.findings import ABSENT, brief
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.core.rule import Rule

Types = tuple[type, ...]
Fields = tuple[tuple[str, Types], ...]

NULL = type(None)
STR: Types = (str,)
INT: Types = (int,)
BOOL: Types = (bool,)
LIST: Types = (list,)
DICT: Types = (dict,)
NUMBER: Types = (int, float)

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
    """The types of a field as JSON names them."""
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
    """Required fields: `missing` where one is absent, `wrong` where its type is another.

    Args:
        report: where findings go.
        value: the object that has the fields.
        fields: the required ones.
        path: JSON path of the object.
        missing: rule for an absent field; its message may name the `key`.
        wrong: rule for a field of another type; its message may name the `key`.
        kind: type of the object, for rules whose message names it.
    """
    for key, types in fields:
        actual = value.get(key, ABSENT)
        if type(actual) not in types:
            rule = missing if actual is ABSENT else wrong
            report.add(rule, f"{path}.{key}", type_names(types), brief(actual), key=key, kind=kind)


def is_json_object(text: str) -> bool:
    """Whether a text is one JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def check_token_counts(
    report: Report, usage: Mapping[str, Any], path: str, prompt: str, answer: str, total: Rule, part: Rule
) -> None:
    """Token counts: not negative, adding up, no part larger than the whole.

    Args:
        report: where findings go.
        usage: the object that has the counts.
        path: its JSON path.
        prompt: field with the tokens of the prompt.
        answer: field with the tokens of the answer.
        total: rule for a total that is not the sum, and for a negative count.
        part: rule for a part that is larger than its whole.
    """
    first, second, whole = usage.get(prompt), usage.get(answer), usage.get("total_tokens")
    if isinstance(first, int) and isinstance(second, int) and isinstance(whole, int):
        if whole != first + second:
            report.add(total, f"{path}.total_tokens", str(first + second), str(whole))
        for key in (prompt, answer):
            if usage[key] < 0:
                report.add(total, f"{path}.{key}", ">= 0", str(usage[key]))
    for key, of in (("cached_tokens", prompt), ("reasoning_tokens", answer)):
        details = usage.get(f"{of}_details")
        if isinstance(details, dict):
            _check_part(report, part, details.get(key), usage.get(of), f"{path}.{of}_details.{key}")


def _check_part(report: Report, rule: Rule, part: object, whole: object, path: str) -> None:
    if isinstance(part, int) and isinstance(whole, int) and not 0 <= part <= whole:
        report.add(rule, path, f"0 to {whole}", str(part))
