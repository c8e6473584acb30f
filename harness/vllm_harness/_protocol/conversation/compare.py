"""Compares answers: an accumulated stream, its terminal event, and a body from the same script."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from vllm_harness._protocol.chat.accumulate import ChatAccumulator
from vllm_harness._protocol.conversation import rules
from vllm_harness._protocol.conversation.exchange import accumulate
from vllm_harness._protocol.core.differences import Difference, differences
from vllm_harness._protocol.core.events import AnyEvent, Json, as_json, plain
from vllm_harness._protocol.core.findings import ABSENT, Finding, brief, kind_at
from vllm_harness._protocol.responses.accumulate import ResponseAccumulator
from vllm_harness._protocol.responses.schema import RESEALED_FIELDS

Body = Mapping[str, Any] | BaseModel

MAX_DIFFERENCES = 100

# Keys whose values may differ between two answers to the same request.
OF_ONE_ANSWER = frozenset(
    {
        *RESEALED_FIELDS,
        "id",
        "call_id",
        "item_id",
        "created",
        "created_at",
        "completed_at",
        "system_fingerprint",
        "billing",
        "cached_tokens",
        "cached_tokens_per_turn",
        "cache_write_tokens",
        "logprobs",
        "obfuscation",
        "signature",
    }
)
# Keys whose values depend on how the request was made.
OF_THE_REQUEST = frozenset({"background", "metadata", "store", "service_tier"})


def compare_responses(
    left: Body,
    right: Body,
    *,
    same_answer: bool = False,
    labels: tuple[str, str] = ("left", "right"),
    ignore: Collection[str] = (),
) -> list[Finding]:
    """Compares two responses, two chat completions or two messages.

    Args:
        left: one body.
        right: the other body.
        same_answer: whether both show the same answer, so that ids and timestamps must agree too.
        labels: the names of the two bodies in messages.
        ignore: further keys to ignore, at every depth.

    Returns:
        A finding for each difference, with its JSON path: CP101 for values that differ, CP102 for a value
        only on the left, CP103 for a value only on the right.
    """
    ignored = RESEALED_FIELDS if same_answer else OF_ONE_ANSWER | OF_THE_REQUEST
    findings: list[Finding] = []
    first, second = plain(left), plain(right)
    for difference in differences(first, second, ignore={*ignored, *ignore}):
        if len(findings) == MAX_DIFFERENCES:
            break
        kind = kind_at(second if difference.left is ABSENT else first, difference.path)
        findings.append(replace(as_finding(difference, *labels), kind=kind))
    return findings


def as_finding(difference: Difference, left: str, right: str) -> Finding:
    """The finding for a difference between two views: CP101, CP102 or CP103."""
    expected, actual = brief(difference.left), brief(difference.right)
    if difference.right is ABSENT:
        return rules.CP102.finding(difference.path, expected, actual, left=left)
    if difference.left is ABSENT:
        return rules.CP103.finding(difference.path, expected, actual, right=right)
    return rules.CP101.finding(difference.path, expected, actual, left=left, right=right)


def compare_stream(
    events: Iterable[AnyEvent],
    body: Body | None = None,
    *,
    ignore: Collection[str] = (),
) -> list[Finding]:
    """Compares an accumulated stream with its terminal event, and with a body of the same script.

    Args:
        events: the stream, of any API.
        body: an answer to the same script that is not streamed; its ids and timestamps are ignored.
        ignore: further keys to ignore in the comparison with the body.

    Returns:
        The differences; empty if all agree.
    """
    values = [value for event in events if (value := as_json(event)) is not None]
    whole = accumulate(values)
    if isinstance(whole, ResponseAccumulator):
        return _compare_response(whole, body, ignore)
    uncounted = isinstance(whole, ChatAccumulator) and not whole.usage
    return _with_body(whole.body, body, {*ignore, *(("usage",) if uncounted else ())})


def matters(difference: Finding) -> bool:
    """Whether a difference is more than null on one side and a missing field on the other."""
    return {difference.expected, difference.actual} != {"null", "nothing"}


def _compare_response(
    accumulated: ResponseAccumulator, body: Body | None, ignore: Collection[str]
) -> list[Finding]:
    response, terminal = accumulated.response, accumulated.terminal
    if terminal is None:
        return _with_body(response, body, ignore)
    labels = ("deltas", "terminal event")
    findings = compare_responses(response, terminal, same_answer=True, labels=labels)
    return findings + _with_body(terminal or response, body, ignore)


def _with_body(stream: Json, body: Body | None, ignore: Collection[str]) -> list[Finding]:
    if body is None:
        return []
    return compare_responses(stream, body, labels=("stream", "body"), ignore=ignore)
