"""What a gateway made of an answer: the differences that the server has not by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from vllm_harness._exchange.answer import Answer, Call
from vllm_harness._protocol.captures import validate_exchange
from vllm_harness._protocol.conversation.compare import OF_ONE_ANSWER
from vllm_harness._protocol.core.differences import common_length, differences
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.findings import ABSENT, Finding, Severity, brief
from vllm_harness._protocol.core.rules import SE107
from vllm_harness._protocol.core.timing import TimingFacts, timing_facts
from vllm_harness.extras.gateways import rules
from vllm_harness.extras.gateways.answers import SideExchange, answer_of
from vllm_harness.extras.gateways.shape import (
    TEXTS,
    by_choice,
    fields_of,
    ids_of,
    key_of,
    kinds_in_order,
    parent_of,
    type_of,
)

MEDIA_TYPE = "content-type"
KEPT_HEADERS = ("x-request-id", "retry-after")
_ERROR_OF_MESSAGES = frozenset({"type", "message"})
"""The fields that Anthropic's errors have; vLLM's have more."""
_FEW = 0.25
_MANY = 10
_TELLING_S = 0.2
"""A stream that takes less may come at once by chance: a delayed acknowledgement of TCP alone takes 40 ms."""
_NUMBERS = re.compile(r"\[\d+\]|\d+")
_EXPLAINED = {
    rules.GW101.code: ("text", "content"),
    rules.GW102.code: ("reasoning", "thinking"),
    rules.GW103.code: ("call", "tool", "function"),
    rules.GW104.code: ("call", "tool", "function", "item"),
    rules.GW105.code: ("call", "tool", "function"),
    rules.GW107.code: ("usage",),
}
"""What a finding about the meaning explains in the fields and events: those with such a word."""
_IDS = frozenset({*OF_ONE_ANSWER, "previous_response_id", "tool_call_id", "tool_use_id"})
_NOT_COMPARED = TEXTS | _IDS | {"sequence_number", "obfuscation"}


def compare_answers(direct: SideExchange, through: SideExchange, *, content: bool = True) -> list[Finding]:
    """What a gateway made of an answer.

    Args:
        direct: to the request as the server itself answered it.
        through: to the same request through the gateway.
        content: whether both had to say the same, as a scripted server does; else only the shape counts.

    Returns:
        The findings; none where the gateway changed nothing that a client can tell.
    """
    found = list(_of_the_request(direct, through))
    if direct.left:
        return found
    if (refused := _of_the_status(direct, through)) is not None:
        return [*found, *refused]
    if direct.streamed != through.streamed or (direct.body is None) != (through.body is None):
        return [*found, _of_another_kind(direct, through)]
    if direct.streamed and direct.ended and not through.ended:
        how = f": {through.broken}" if through.broken else ""
        return [*found, rules.GW119.finding(actual=brief((through.json_events or ({},))[-1]), how=how)]
    meant = [*_of_the_meaning(direct, through, content), *_of_the_usage(direct, through, content)]
    explained = {word for each in meant if each.counts for word in _EXPLAINED.get(each.code, ())}
    found += meant
    if direct.streamed:
        found += _of_the_events(direct, through, explained)
        found += [] if explained else _of_the_times(direct, through)
        found += _of_the_ids(direct, through)
    found += _of_the_fields(direct, through, explained, content)
    found += _of_the_headers(direct, through)
    return [*found, *_of_the_contract(direct, through, {each.code for each in found})]


def _of_the_request(direct: SideExchange, through: SideExchange) -> Iterator[Finding]:
    """What the server saw."""
    if direct.seen is None or through.seen is None or not direct.seen:
        return
    once, seen = direct.seen[0], through.seen
    if len(seen) > len(direct.seen):
        yield rules.GW127.finding(expected=str(len(direct.seen)), actual=str(len(seen)), times=len(seen))
    if not seen:
        return
    if direct.left and "cut" in _ends(once.states) and "cut" not in _ends(seen[0].states):
        yield rules.GW126.finding(expected="cut", actual=", ".join(seen[0].states) or "nothing")
    if seen[0].api != once.api:
        yield rules.GW129.finding(expected=once.api, actual=seen[0].api)
    elif once.body is not None and seen[0].body is not None:
        yield from _of_the_body_sent(once.body, seen[0].body)


def _ends(states: Sequence[str]) -> set[str]:
    return {"cut" if state == "running" else state for state in states}


def _of_the_body_sent(sent: Json, came: Json) -> Iterator[Finding]:
    for difference in differences(sent, came, ignore=_IDS):
        before, after = difference.left, difference.right
        if {type(before), type(after)} <= {type(None), type(ABSENT)}:
            continue
        what = "added" if before is ABSENT else "lost" if after is ABSENT else "another"
        finding = rules.GW128.finding(difference.path, brief(before), brief(after), what=what)
        harmless = before is ABSENT or difference.path == "$.model"
        yield replace(finding, severity=Severity.INFO) if harmless else finding


def _of_the_status(direct: SideExchange, through: SideExchange) -> list[Finding] | None:
    """What is to be said of answers of which one is an error; None where both are answers."""
    before, after = direct.status, through.status
    if before < 400 and 0 < after < 400:
        return None
    if before >= 400 and 0 < after < 400:
        return [rules.GW121.finding("$", brief(direct.error), brief(_shown(through)), before=before)]
    found = []
    if before != after:
        actual = through.broken or brief(_shown(through))
        finding = rules.GW120.finding("$", brief(_shown(direct)), actual, before=before, after=after)
        both_of_the_client = 400 <= before < 500 and 400 <= after < 500
        found = [replace(finding, severity=Severity.WARNING) if both_of_the_client else finding]
    if before >= 400 and direct.streamed != through.streamed:
        return [*found, _of_another_kind(direct, through)]
    return [*found, *(_of_the_error(direct, through) if before >= 400 else ())]


def _of_another_kind(direct: SideExchange, through: SideExchange) -> Finding:
    before, after = (each.headers.get(MEDIA_TYPE, "nothing") for each in (direct, through))
    return rules.GW124.finding("$", before, after)


def _shown(answer: SideExchange) -> object:
    return answer.error or answer.body or (answer.json_events[:1] and answer.json_events[0]) or ABSENT


def _of_the_error(direct: SideExchange, through: SideExchange) -> Iterator[Finding]:
    before, after = direct.error, through.error
    if before is None or after is None:
        if before is not None:
            yield rules.GW122.finding("$.error", brief(before), brief(through.body or ABSENT))
        return
    for difference in differences(before, after, path="$.error"):
        left, right = difference.left, difference.right
        if direct.api == "messages" and key_of(difference.path) not in _ERROR_OF_MESSAGES:
            continue
        if left is ABSENT or {type(left), type(right)} <= {type(None), type(ABSENT)}:
            continue
        finding = rules.GW122.finding(difference.path, brief(left), brief(right))
        kept = isinstance(left, str) and isinstance(right, str) and left in right
        yield replace(finding, severity=Severity.INFO) if kept else finding


def _of_the_meaning(direct: SideExchange, through: SideExchange, content: bool) -> Iterator[Finding]:
    before, after = direct.answers, through.answers
    for left, right in zip_longest(before, after, fillvalue=Answer("failed", end="nothing")):
        if content:
            yield from _of_a_choice(left, right)
        elif left.reasoning and not right.reasoning:
            yield rules.GW102.finding(left.path, brief(left.reasoning), "nothing", what="lost")


def _of_a_choice(left: Answer, right: Answer) -> Iterator[Finding]:
    if left.text != right.text:
        at = common_length(left.text, right.text)
        yield rules.GW101.finding(left.path, brief(left.text[at:]), brief(right.text[at:]), at=at)
    before, after = (each.reasoning + each.summary for each in (left, right))
    if before != after:
        what = "changed" if after else "lost"
        yield rules.GW102.finding(left.path, brief(before), brief(after), what=what)
    yield from _of_the_calls(left, right)
    if left.end != right.end:
        yield rules.GW106.finding(left.path, left.end, right.end)


def _of_the_calls(left: Answer, right: Answer) -> Iterator[Finding]:
    calls, others = ([replace(call, id="") for call in each.open_calls] for each in (left, right))
    shown = brief([_text(call) for call in calls]), brief([_text(call) for call in others])
    before, after = len(calls), len(others)
    if after < before:
        joined = "".join(call.arguments for call in others)
        if after and all(call.arguments in joined for call in calls):
            yield rules.GW104.finding(left.path, *shown, before=before, after=after)
        else:
            yield rules.GW103.finding(left.path, *shown, lost=before - after, all=before)
    elif calls != others:
        finding = rules.GW105.finding(left.path, *shown)
        same = [(c.name, c.value) for c in calls] == [(c.name, c.value) for c in others]
        yield replace(finding, severity=Severity.INFO) if same else finding


def _text(call: Call) -> str:
    return f"{call.name}({call.arguments})"


def _of_the_usage(direct: SideExchange, through: SideExchange, content: bool) -> Iterator[Finding]:
    before, after = _counted(direct), _counted(through)
    if before and not after:
        yield rules.GW107.finding("$.usage", brief(before), "nothing")
    elif before != after and before and content:
        finding = rules.GW108.finding("$.usage", brief(before), brief(after))
        translated = [each.seen[0].api if each.seen else "" for each in (direct, through)]
        yield replace(finding, severity=Severity.INFO) if len(set(translated)) > 1 else finding


def _counted(exchange: SideExchange) -> dict[str, int]:
    """The tokens of the prompt and of the answer, as far as the answer says."""
    usage = exchange.summed.get("usage") or {}
    names = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    return {name: usage[name] for name in names if isinstance(usage.get(name), int)}


def _of_the_events(
    direct: SideExchange, through: SideExchange, explained: Iterable[str]
) -> Iterator[Finding]:
    before, after = kinds_in_order(direct), kinds_in_order(through)
    if direct.done_mark and not through.done_mark:
        yield rules.GW118.finding("$", "data: [DONE]", "the end")
    named = {type_of(kind) for kind in before}, {type_of(kind) for kind in after}
    for kind in sorted(named[0] - named[1] - {"[DONE]"}):
        if not _is_about(kind, explained):
            yield rules.GW113.finding("$.type", kind, "nothing", kind=kind)
    for kind in sorted(named[1] - named[0]):
        if not _is_about(kind, explained):
            yield rules.GW114.finding("$.type", "nothing", kind, kind=kind)
    common = {*before} & {*after}
    left, right = (by_choice(kind for kind in kinds if kind in common) for kinds in (before, after))
    for choice, kinds in left.items():
        pairs = enumerate(zip(kinds, right[choice], strict=True))
        at = next((number for number, (first, other) in pairs if first != other), None)
        if at is not None:
            shown = (", ".join(each[at : at + 3]) for each in (kinds, right[choice]))
            yield rules.GW115.finding("$.type", *shown)


def _is_about(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)


def _of_the_times(direct: SideExchange, through: SideExchange) -> Iterator[Finding]:
    before, after = _facts(direct), _facts(through)
    tells = before.incremental and before.deltas >= _MANY and _spread_s(before) >= _TELLING_S
    if tells and after.incremental is False and _spread_s(after) <= _spread_s(before) * _FEW:
        seconds = after.last_delta or 0.0
        yield rules.GW116.finding("$", "spread over the time", f"{after.deltas} deltas", seconds=seconds)
    if before.deltas >= _MANY and after.deltas <= before.deltas * _FEW:
        yield rules.GW117.finding("$", f"{before.deltas} deltas", f"{after.deltas} deltas")


def _spread_s(facts: TimingFacts) -> float:
    """Seconds between the first and the last delta."""
    return (facts.last_delta or 0.0) - (facts.first_delta or 0.0)


def _facts(answer: SideExchange) -> TimingFacts:
    return timing_facts(zip(answer.times, answer.frames, strict=False))


def held_back(answer: SideExchange) -> bool:
    """Whether the deltas of a stream came at once."""
    return _facts(answer).incremental is False


def _of_the_ids(direct: SideExchange, through: SideExchange) -> Iterator[Finding]:
    before = ids_of(direct)
    for thing, ids in ids_of(through).items():
        if len(ids) > 1 and len(before.get(thing, ())) <= 1:
            yield rules.GW123.finding("$", "one id", brief(sorted(ids)), thing=thing)


def _of_the_fields(
    direct: SideExchange, through: SideExchange, explained: Iterable[str], content: bool
) -> list[Finding]:
    """Fields that are lost, renamed, added or changed, each once for all types of events that show it."""
    before, after = fields_of(direct), fields_of(through)
    found: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
    for kind in before.keys() & after.keys():
        for finding in _of_fields(kind, direct, through, content):
            if not _is_about(f"{kind} {finding.path}", explained):
                found.setdefault((finding.code, finding.path), (finding, []))[1].append(kind)
    return [_in_events(*found[key]) for key in sorted(found)]


def _in_events(finding: Finding, kinds: list[str]) -> Finding:
    named = ", ".join(sorted(kind for kind in kinds if kind))
    return replace(finding, message=finding.message + (f" in {named}" if named else ""), kind=named)


def _of_fields(kind: str, direct: SideExchange, through: SideExchange, content: bool) -> Iterator[Finding]:
    before, after = fields_of(direct)[kind], fields_of(through)[kind]
    lost = {path: values for path, values in before.items() if path not in after and _is_there(values)}
    added = {path: values for path, values in after.items() if path not in before and _is_there(values)}
    for path, values in lost.items():
        if path.startswith("$.usage") or _has_any(after, path):
            continue
        if name := _same_value(path, values, added):
            added.pop(name)
            yield rules.GW110.finding(path, _each(values), _each(values), name=key_of(name))
        else:
            yield rules.GW109.finding(path, _each(values), "nothing")
    for path, values in added.items():
        if not _has_any(before, path):
            yield rules.GW111.finding(path, "nothing", _each(values))
    for path in before.keys() & after.keys() if content else ():
        same = set(map(_number, before[path])) == set(map(_number, after[path]))
        asked_for = key_of(path) == "model" and set(after[path]) == {str(through.request.get("model"))}
        if _is_compared(path) and not same and not asked_for:
            yield rules.GW112.finding(path, _each(before[path]), _each(after[path]))


def _number(value: object) -> str:
    """A value as text; 0 and 0.0 are one number, as JSON has no other."""
    return brief(float(value) if type(value) is int else value)


def _each(values: list[object]) -> str:
    """Values, each once."""
    texts = list(dict.fromkeys(map(brief, values)))
    return texts[0] if len(texts) == 1 else ", ".join(texts)[:160]


def _is_there(values: list[object]) -> bool:
    return any(value not in ("", [], {}) for value in values)


def _has_any(fields: dict[str, list[object]], path: str) -> bool:
    """Whether a side has something within a field, or the field's place holds a value."""
    return any(
        other.startswith((f"{path}.", f"{path}[")) or path.startswith((f"{other}.", f"{other}["))
        for other in fields
    )


def _same_value(path: str, values: list[object], added: dict[str, list[object]]) -> str:
    """The added field beside a lost one that has its value."""
    whole = "".join(map(str, values))
    telling = any(isinstance(value, str | int | float) and not isinstance(value, bool) for value in values)
    beside = (other for other in added if parent_of(other) == parent_of(path))
    return next((other for other in beside if telling and "".join(map(str, added[other])) == whole), "")


def _is_compared(path: str) -> bool:
    names = {name.replace("[*]", "") for name in path.split(".")}
    return "usage" not in names and not names & _NOT_COMPARED and key_of(path) not in ("finish_reason",)


def _of_the_headers(direct: SideExchange, through: SideExchange) -> Iterator[Finding]:
    for name in KEPT_HEADERS:
        if name in direct.headers and name not in through.headers:
            yield rules.GW125.finding(f"$.{name}", direct.headers[name], "nothing")


def _of_the_contract(direct: SideExchange, through: SideExchange, told: set[str]) -> list[Finding]:
    """What the validator finds in the gateway's answer, and does not find in the server's."""
    before = {(each.code, _NUMBERS.sub("*", each.path)) for each in validated(direct)}
    found: dict[tuple[str, str], Finding] = {}
    for each in validated(through):
        key = (each.code, _NUMBERS.sub("*", each.path))
        if each.counts and key not in before and not (each.code == SE107.code and rules.GW118.code in told):
            found.setdefault(key, each)
    return list(found.values())


def compare_samples(direct: Mapping[str, Any], through: Mapping[str, Any]) -> list[Finding]:
    """The findings of two samples: an answer that came directly, and the same through a gateway."""
    return compare_answers(answer_of(direct), answer_of(through))


def validated(answer: SideExchange) -> list[Finding]:
    """What the validator finds in an answer."""
    return validate_exchange(replace(answer, request={}, body=answer.body or {}), api=answer.api)
