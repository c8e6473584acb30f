"""Compares the fields of two answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_harness._protocol.conversation.compare import OF_ONE_ANSWER
from vllm_harness._protocol.core.findings import Finding, brief
from vllm_harness.extras.gateways import rules
from vllm_harness.extras.gateways.answers import SideExchange
from vllm_harness.extras.gateways.shape import TEXTS, fields_of, key_of, parent_of

IDS = frozenset({*OF_ONE_ANSWER, "previous_response_id", "tool_call_id", "tool_use_id"})
_NOT_COMPARED = TEXTS | IDS | {"sequence_number", "obfuscation"}


def compare_fields(
    direct: SideExchange, through: SideExchange, explained: Iterable[str], content: bool
) -> list[Finding]:
    """Finds fields that are lost, renamed, added or changed.

    Args:
        explained: words in the names of the fields and events that other findings explain.
        content: whether the values are compared, too.

    Returns:
        A finding for each field, which names the types of events that show it.
    """
    before, after = fields_of(direct), fields_of(through)
    findings: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
    for kind in before.keys() & after.keys():
        for finding in _compare_kind(kind, direct, through, content):
            if not is_explained(f"{kind} {finding.path}", explained):
                findings.setdefault((finding.code, finding.path), (finding, []))[1].append(kind)
    return [_in_events(*findings[key]) for key in sorted(findings)]


def _in_events(finding: Finding, kinds: list[str]) -> Finding:
    named = ", ".join(sorted(kind for kind in kinds if kind))
    return replace(finding, message=finding.message + (f" in {named}" if named else ""), kind=named)


def _compare_kind(kind: str, direct: SideExchange, through: SideExchange, content: bool) -> Iterator[Finding]:
    before, after = fields_of(direct)[kind], fields_of(through)[kind]
    lost = {path: values for path, values in before.items() if path not in after and _has_value(values)}
    added = {path: values for path, values in after.items() if path not in before and _has_value(values)}
    for path, values in lost.items():
        if path.startswith("$.usage") or _overlaps(after, path):
            continue
        if name := _same_value(path, values, added):
            added.pop(name)
            yield rules.GW110.finding(path, _distinct(values), _distinct(values), name=key_of(name))
        else:
            yield rules.GW109.finding(path, _distinct(values), "nothing")
    for path, values in added.items():
        if not _overlaps(before, path):
            yield rules.GW111.finding(path, "nothing", _distinct(values))
    for path in before.keys() & after.keys() if content else ():
        same = set(map(_number, before[path])) == set(map(_number, after[path]))
        requested = key_of(path) == "model" and set(after[path]) == {str(through.request.get("model"))}
        if _is_compared(path) and not same and not requested:
            yield rules.GW112.finding(path, _distinct(before[path]), _distinct(after[path]))


def _number(value: object) -> str:
    """A value as text; 0 and 0.0 give the same text, since JSON has one type of number."""
    return brief(float(value) if type(value) is int else value)


def _distinct(values: list[object]) -> str:
    """The distinct values as text."""
    texts = list(dict.fromkeys(map(brief, values)))
    return texts[0] if len(texts) == 1 else ", ".join(texts)[:160]


def _has_value(values: list[object]) -> bool:
    return any(value not in ("", [], {}) for value in values)


def _overlaps(fields: dict[str, list[object]], path: str) -> bool:
    """Whether a side has a field below a path, or a value at a parent of the path."""
    return any(
        other.startswith((f"{path}.", f"{path}[")) or path.startswith((f"{other}.", f"{other}["))
        for other in fields
    )


def _same_value(path: str, values: list[object], added: dict[str, list[object]]) -> str:
    """The added field next to a lost field that has the lost field's value; empty if there is none."""
    whole = "".join(map(str, values))
    is_distinctive = any(
        isinstance(value, str | int | float) and not isinstance(value, bool) for value in values
    )
    beside = (other for other in added if parent_of(other) == parent_of(path))
    return next(
        (other for other in beside if is_distinctive and "".join(map(str, added[other])) == whole), ""
    )


def _is_compared(path: str) -> bool:
    names = {name.replace("[*]", "") for name in path.split(".")}
    return "usage" not in names and not names & _NOT_COMPARED and key_of(path) not in ("finish_reason",)


def is_explained(text: str, words: Iterable[str]) -> bool:
    """Whether a text contains one of the words."""
    return any(word in text for word in words)
