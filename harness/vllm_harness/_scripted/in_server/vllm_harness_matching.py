"""Checks the conditions of a rule on a request: finds those not met, and what their patterns matched.

Runs inside the server and imports only the standard library, so that unit tests can use it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

SHOWN = 80
PATTERNS = ("user", "system", "tool_output", "model")
EXACT = ("turn", "stream", "parallel_tool_calls", "tool_choice")
ONE_OF = ("api", "format")

Facts = Mapping[str, Any]
Groups = dict[str, str]


def unmet(when: Mapping[str, Any], facts: Facts, groups: Groups) -> list[str]:
    """The conditions that a request does not meet, each with the reason.

    Args:
        when: conditions by key, as written in a script book.
        facts: the facts of the request; see `vllm_harness_conversation.facts`.
        groups: receives the named groups of the patterns that matched.
    """
    reasons = []
    for key, condition in when.items():
        if reason := CHECKS[key](key, condition, facts, groups):
            reasons.append(f"{key}: {json.dumps(condition, ensure_ascii=False)} ({reason})")
    return reasons


def _pattern(key: str, expected: str, facts: Facts, groups: Groups) -> str:
    if _search(expected, facts[key], groups):
        return ""
    return f"the request has {_short(facts[key])}" if facts[key] else "the request has none"


def _exact(key: str, expected: Any, facts: Facts, groups: Groups) -> str:
    return "" if facts[key] == expected else f"the request has {json.dumps(facts[key])}"


def _one_of(key: str, expected: list[str], facts: Facts, groups: Groups) -> str:
    return "" if facts[key] in expected else f"the request has {json.dumps(facts[key])}"


def _tools(key: str, expected: list[str], facts: Facts, groups: Groups) -> str:
    if missing := [name for name in expected if name not in facts["tools"]]:
        offered = ", ".join(facts["tools"]) or "no tools"
        return f"it does not offer {', '.join(missing)}; it offers {offered}"
    return ""


def _message(key: str, expected: Mapping[str, str], facts: Facts, groups: Groups) -> str:
    for role, text in facts["messages"]:
        if expected.get("role") in (None, role) and _search(expected.get("text", ""), text, groups):
            return ""
    roles = ", ".join(role for role, _ in facts["messages"]) or "none"
    return f"no message matches; the roles are {roles}"


def _tool_result(key: str, expected: Mapping[str, str], facts: Facts, groups: Groups) -> str:
    for result in facts["tool_results"]:
        tried: Groups = {}
        patterns = [(expected.get(part, ""), result[part]) for part in ("arguments", "output")]
        if expected.get("name") in (None, result["name"]) and all(
            _search(pattern, text, tried) for pattern, text in patterns
        ):
            groups.update(tried)
            return ""
    results = "; ".join(
        f"{result['name'] or 'unknown'}: {_short(result['output'])}" for result in facts["tool_results"]
    )
    return f"no result matches; the request has {results or 'none'}"


def _header(key: str, expected: Mapping[str, str], facts: Facts, groups: Groups) -> str:
    for name, pattern in expected.items():
        value = facts["header"].get(name.lower())
        if value is None:
            return f"the request has no header {name}"
        if not _search(pattern, value, groups):
            return f"its header {name} does not match"  # its value may be a secret
    return ""


def _all(key: str, expected: list[Mapping[str, Any]], facts: Facts, groups: Groups) -> str:
    return "; ".join(reason for when in expected for reason in unmet(when, facts, groups))


def _any(key: str, expected: list[Mapping[str, Any]], facts: Facts, groups: Groups) -> str:
    reasons = []
    for when in expected:
        tried: Groups = {}
        failed = unmet(when, facts, tried)
        if not failed:
            groups.update(tried)
            return ""
        reasons.append(", ".join(failed))
    return f"none holds: {'; '.join(reasons)}"


def _not(key: str, expected: Mapping[str, Any], facts: Facts, groups: Groups) -> str:
    return "" if unmet(expected, facts, {}) else "it holds"


CHECKS: dict[str, Callable[[str, Any, Facts, Groups], str]] = {
    **dict.fromkeys(PATTERNS, _pattern),
    **dict.fromkeys(EXACT, _exact),
    **dict.fromkeys(ONE_OF, _one_of),
    "tools": _tools,
    "message": _message,
    "tool_result": _tool_result,
    "header": _header,
    "all": _all,
    "any": _any,
    "not": _not,
}
"""The check for each condition; it returns the reason why the condition is not met, or an empty string."""


def _search(pattern: str, text: str, groups: Groups) -> bool:
    match = re.search(pattern, text)
    if match:
        groups.update({name: value or "" for name, value in match.groupdict().items()})
    return match is not None


def _short(text: str) -> str:
    return json.dumps(text if len(text) <= SHOWN else text[:SHOWN] + "...", ensure_ascii=False)
