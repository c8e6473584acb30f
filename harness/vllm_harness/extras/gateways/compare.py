"""Compares the answer through a gateway with the server's own answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from vllm_harness._exchange.answer import Answer, Call
from vllm_harness._protocol.captures import validate_exchange
from vllm_harness._protocol.core.differences import common_length, differences
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.findings import ABSENT, Finding, Severity, brief
from vllm_harness._protocol.core.rules import SE107
from vllm_harness._protocol.core.timing import TimingFacts, timing_facts
from vllm_harness.extras.gateways import rules
from vllm_harness.extras.gateways.answers import SideExchange, answer_of
from vllm_harness.extras.gateways.compare_fields import IDS, compare_fields, is_explained
from vllm_harness.extras.gateways.shape import by_choice, ids_of, key_of, kinds_in_order, type_of

MEDIA_TYPE = "content-type"
KEPT_HEADERS = ("x-request-id", "retry-after")
_ERROR_OF_MESSAGES = frozenset({"type", "message"})
"""The fields of Anthropic's errors; vLLM's have more."""
_FEW = 0.25
_MANY = 10
_LONG_ENOUGH_S = 0.2
"""A shorter stream may arrive at once by chance: a delayed TCP acknowledgement alone takes 40 ms."""
_NUMBERS = re.compile(r"\[\d+\]|\d+")
_EXPLAINED = {
    rules.GW101.code: ("text", "content"),
    rules.GW102.code: ("reasoning", "thinking"),
    rules.GW103.code: ("call", "tool", "function"),
    rules.GW104.code: ("call", "tool", "function", "item"),
    rules.GW105.code: ("call", "tool", "function"),
    rules.GW107.code: ("usage",),
}
"""By code of a finding about the meaning: words in the names of the fields and events that it explains."""


def compare_answers(direct: SideExchange, through: SideExchange, *, content: bool = True) -> list[Finding]:
    """Compares the answers to the same request.

    Args:
        direct: the exchange with the server itself.
        through: the exchange through the gateway.
        content: whether both answers must have the same content; if not, only their shape is compared.

    Returns:
        The findings; empty if the gateway changed nothing that a client can see.
    """
    findings = list(_compare_requests(direct, through))
    if direct.left:
        return findings
    if (refused := _compare_status(direct, through)) is not None:
        return [*findings, *refused]
    if direct.streamed != through.streamed or (direct.body is None) != (through.body is None):
        return [*findings, _other_kind_of_body(direct, through)]
    if direct.streamed and direct.ended and not through.ended:
        how = f": {through.broken}" if through.broken else ""
        return [*findings, rules.GW119.finding(actual=brief((through.json_events or ({},))[-1]), how=how)]
    about_meaning = [*_compare_meaning(direct, through, content), *_compare_usage(direct, through, content)]
    explained = {
        word for finding in about_meaning if finding.counts for word in _EXPLAINED.get(finding.code, ())
    }
    findings += about_meaning
    if direct.streamed:
        findings += _compare_events(direct, through, explained)
        findings += [] if explained else _compare_times(direct, through)
        findings += _compare_ids(direct, through)
    findings += compare_fields(direct, through, explained, content)
    findings += _compare_headers(direct, through)
    return [*findings, *_compare_validity(direct, through, {finding.code for finding in findings})]


def compare_sides(
    direct: Iterable[SideExchange], through: Iterable[SideExchange], *, content: bool
) -> list[tuple[str, Finding]]:
    """Compares the exchanges that both sides have; returns each finding with the name of its exchange."""
    by_name = {exchange.name: exchange for exchange in through}
    return [
        (exchange.name, finding)
        for exchange in direct
        if exchange.name in by_name
        for finding in compare_answers(exchange, by_name[exchange.name], content=content)
    ]


def _compare_requests(direct: SideExchange, through: SideExchange) -> Iterator[Finding]:
    """Compares the requests that the server received."""
    if direct.seen is None or through.seen is None or not direct.seen:
        return
    expected, seen = direct.seen[0], through.seen
    if len(seen) > len(direct.seen):
        yield rules.GW127.finding(expected=str(len(direct.seen)), actual=str(len(seen)), times=len(seen))
    if not seen:
        return
    if direct.left and "cut" in _ends(expected.states) and "cut" not in _ends(seen[0].states):
        yield rules.GW126.finding(expected="cut", actual=", ".join(seen[0].states) or "nothing")
    if seen[0].api != expected.api:
        yield rules.GW129.finding(expected=expected.api, actual=seen[0].api)
    elif expected.body is not None and seen[0].body is not None:
        yield from _compare_request_bodies(expected.body, seen[0].body)


def _ends(states: Sequence[str]) -> set[str]:
    return {"cut" if state == "running" else state for state in states}


def _compare_request_bodies(sent: Json, received: Json) -> Iterator[Finding]:
    for difference in differences(sent, received, ignore=IDS):
        before, after = difference.left, difference.right
        if {type(before), type(after)} <= {type(None), type(ABSENT)}:
            continue
        what = "added" if before is ABSENT else "lost" if after is ABSENT else "another"
        finding = rules.GW128.finding(difference.path, brief(before), brief(after), what=what)
        harmless = before is ABSENT or difference.path == "$.model"
        yield replace(finding, severity=Severity.INFO) if harmless else finding


def _compare_status(direct: SideExchange, through: SideExchange) -> list[Finding] | None:
    """The findings if one of the answers is an error; None if neither is."""
    before, after = direct.status, through.status
    if before < 400 and 0 < after < 400:
        return None
    if before >= 400 and 0 < after < 400:
        return [rules.GW121.finding("$", brief(direct.error), brief(_shown(through)), before=before)]
    findings = []
    if before != after:
        actual = through.broken or brief(_shown(through))
        finding = rules.GW120.finding("$", brief(_shown(direct)), actual, before=before, after=after)
        both_are_4xx = 400 <= before < 500 and 400 <= after < 500
        findings = [replace(finding, severity=Severity.WARNING) if both_are_4xx else finding]
    if before >= 400 and direct.streamed != through.streamed:
        return [*findings, _other_kind_of_body(direct, through)]
    return [*findings, *(_compare_errors(direct, through) if before >= 400 else ())]


def _other_kind_of_body(direct: SideExchange, through: SideExchange) -> Finding:
    before, after = (each.headers.get(MEDIA_TYPE, "nothing") for each in (direct, through))
    return rules.GW124.finding("$", before, after)


def _shown(answer: SideExchange) -> object:
    return answer.error or answer.body or (answer.json_events[:1] and answer.json_events[0]) or ABSENT


def _compare_errors(direct: SideExchange, through: SideExchange) -> Iterator[Finding]:
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


def _compare_meaning(direct: SideExchange, through: SideExchange, content: bool) -> Iterator[Finding]:
    before, after = direct.answers, through.answers
    for left, right in zip_longest(before, after, fillvalue=Answer("failed", end="nothing")):
        if content:
            yield from _compare_choices(left, right)
        elif left.reasoning and not right.reasoning:
            yield rules.GW102.finding(left.path, brief(left.reasoning), "nothing", what="lost")


def _compare_choices(left: Answer, right: Answer) -> Iterator[Finding]:
    if left.text != right.text:
        at = common_length(left.text, right.text)
        yield rules.GW101.finding(left.path, brief(left.text[at:]), brief(right.text[at:]), at=at)
    before, after = (each.reasoning + each.summary for each in (left, right))
    if before != after:
        what = "changed" if after else "lost"
        yield rules.GW102.finding(left.path, brief(before), brief(after), what=what)
    yield from _compare_calls(left, right)
    if left.end != right.end:
        yield rules.GW106.finding(left.path, left.end, right.end)


def _compare_calls(left: Answer, right: Answer) -> Iterator[Finding]:
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


def _compare_usage(direct: SideExchange, through: SideExchange, content: bool) -> Iterator[Finding]:
    before, after = _counted(direct), _counted(through)
    if before and not after:
        yield rules.GW107.finding("$.usage", brief(before), "nothing")
    elif before != after and before and content:
        finding = rules.GW108.finding("$.usage", brief(before), brief(after))
        translated = [each.seen[0].api if each.seen else "" for each in (direct, through)]
        yield replace(finding, severity=Severity.INFO) if len(set(translated)) > 1 else finding


def _counted(exchange: SideExchange) -> dict[str, int]:
    """The token counts of the prompt and of the answer, as far as the answer has them."""
    usage = exchange.summed.get("usage") or {}
    names = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    return {name: usage[name] for name in names if isinstance(usage.get(name), int)}


def _compare_events(
    direct: SideExchange, through: SideExchange, explained: Iterable[str]
) -> Iterator[Finding]:
    before, after = kinds_in_order(direct), kinds_in_order(through)
    if direct.done_mark and not through.done_mark:
        yield rules.GW118.finding("$", "data: [DONE]", "the end")
    named = {type_of(kind) for kind in before}, {type_of(kind) for kind in after}
    for kind in sorted(named[0] - named[1] - {"[DONE]"}):
        if not is_explained(kind, explained):
            yield rules.GW113.finding("$.type", kind, "nothing", kind=kind)
    for kind in sorted(named[1] - named[0]):
        if not is_explained(kind, explained):
            yield rules.GW114.finding("$.type", "nothing", kind, kind=kind)
    common = {*before} & {*after}
    left, right = (by_choice(kind for kind in kinds if kind in common) for kinds in (before, after))
    for choice, kinds in left.items():
        pairs = enumerate(zip(kinds, right[choice], strict=True))
        at = next((number for number, (first, other) in pairs if first != other), None)
        if at is not None:
            shown = (", ".join(each[at : at + 3]) for each in (kinds, right[choice]))
            yield rules.GW115.finding("$.type", *shown)


def _compare_times(direct: SideExchange, through: SideExchange) -> Iterator[Finding]:
    before, after = _facts(direct), _facts(through)
    is_spread = before.incremental and before.deltas >= _MANY and _spread_s(before) >= _LONG_ENOUGH_S
    if is_spread and after.incremental is False and _spread_s(after) <= _spread_s(before) * _FEW:
        seconds = after.last_delta or 0.0
        yield rules.GW116.finding("$", "spread over the time", f"{after.deltas} deltas", seconds=seconds)
    if before.deltas >= _MANY and after.deltas <= before.deltas * _FEW:
        yield rules.GW117.finding("$", f"{before.deltas} deltas", f"{after.deltas} deltas")


def _spread_s(facts: TimingFacts) -> float:
    """Seconds between the first and the last delta."""
    return (facts.last_delta or 0.0) - (facts.first_delta or 0.0)


def _facts(answer: SideExchange) -> TimingFacts:
    return timing_facts(zip(answer.times, answer.frames, strict=False))


def _compare_ids(direct: SideExchange, through: SideExchange) -> Iterator[Finding]:
    before = ids_of(direct)
    for thing, ids in ids_of(through).items():
        if len(ids) > 1 and len(before.get(thing, ())) <= 1:
            yield rules.GW123.finding("$", "one id", brief(sorted(ids)), thing=thing)


def _compare_headers(direct: SideExchange, through: SideExchange) -> Iterator[Finding]:
    for name in KEPT_HEADERS:
        if name in direct.headers and name not in through.headers:
            yield rules.GW125.finding(f"$.{name}", direct.headers[name], "nothing")


def _compare_validity(direct: SideExchange, through: SideExchange, codes: set[str]) -> list[Finding]:
    """The validator's findings about the gateway's answer that do not also concern the server's answer.

    Args:
        codes: the codes of the findings of the comparison so far.
    """
    before = {(finding.code, _NUMBERS.sub("*", finding.path)) for finding in validated(direct)}
    findings: dict[tuple[str, str], Finding] = {}
    for finding in validated(through):
        key = (finding.code, _NUMBERS.sub("*", finding.path))
        if (
            finding.counts
            and key not in before
            and not (finding.code == SE107.code and rules.GW118.code in codes)
        ):
            findings.setdefault(key, finding)
    return list(findings.values())


def compare_samples(direct: Mapping[str, Any], through: Mapping[str, Any]) -> list[Finding]:
    """Compares two samples of a rule: a server's answer, and the same answer through a gateway."""
    return compare_answers(answer_of(direct), answer_of(through))


def validated(answer: SideExchange) -> list[Finding]:
    """The validator's findings about an answer."""
    return validate_exchange(replace(answer, request={}, body=answer.body or {}), api=answer.api)
