"""Three-way comparison: an accumulated stream, its terminal event, a body of the same script."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from vllm_harness.protocol.accumulate import ChatAccumulator, MessageAccumulator, ResponseAccumulator
from vllm_harness.protocol.differences import differences
from vllm_harness.protocol.findings import ABSENT, Finding, brief
from vllm_harness.protocol.messages_objects import EVENTS as MESSAGES_EVENTS
from vllm_harness.protocol.rules import SEVERITIES
from vllm_harness.protocol.schema import RESEALED_FIELDS
from vllm_harness.protocol.stream import AnyEvent, as_json, plain

MAX_DIFFERENCES = 100

# what two answers to the same request never share
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
# what depends on how the answer was asked for
OF_THE_REQUEST = frozenset({"background", "metadata", "store", "service_tier"})


def compare_responses(
    left: Mapping[str, Any] | BaseModel,
    right: Mapping[str, Any] | BaseModel,
    *,
    same_answer: bool = False,
    labels: tuple[str, str] = ("left", "right"),
    ignore: Collection[str] = (),
) -> list[Finding]:
    """Where two responses (or two chat completions, or two messages) differ.

    Args:
        left: one body.
        right: the other.
        same_answer: they are the same answer, seen twice: ids and timestamps must agree too.
        labels: what to call the two in messages.
        ignore: further keys to leave aside, at every depth.

    Returns:
        A finding a difference, each with its JSON path: CP101 values differ, CP102 only on the left, CP103
        only on the right.
    """
    aside = RESEALED_FIELDS if same_answer else OF_ONE_ANSWER | OF_THE_REQUEST
    findings: list[Finding] = []
    for difference in differences(plain(left), plain(right), ignore={*aside, *ignore}):
        if len(findings) == MAX_DIFFERENCES:
            break
        code, message = "CP101", f"{labels[0]} and {labels[1]} differ"
        if difference.right is ABSENT:
            code, message = "CP102", f"only in {labels[0]}"
        elif difference.left is ABSENT:
            code, message = "CP103", f"only in {labels[1]}"
        findings.append(
            Finding(
                code,
                SEVERITIES[code],
                None,
                difference.path,
                message,
                brief(difference.left),
                brief(difference.right),
            )
        )
    return findings


def compare_stream(
    events: Iterable[AnyEvent],
    body: Mapping[str, Any] | BaseModel | None = None,
    *,
    ignore: Collection[str] = (),
) -> list[Finding]:
    """Compares what a stream adds up to with its terminal event, and with a body of the same script.

    Args:
        events: the stream, of any of the APIs.
        body: a non-streaming answer to the same script; ids and timestamps are left aside.
        ignore: further keys to leave aside when comparing with the body.

    Returns:
        The differences; empty where all agree.
    """
    values = [value for event in events if (value := as_json(event)) is not None]
    if any("choices" in value for value in values):
        chat = ChatAccumulator()
        for value in values:
            chat.feed(value)
        if body is None:
            return []
        aside = {*ignore, *(() if chat.usage else ("usage",))}
        return compare_responses(chat.completion, body, labels=("stream", "body"), ignore=aside)
    if any(value.get("type") in MESSAGES_EVENTS for value in values):
        message = MessageAccumulator()
        for value in values:
            message.feed(value)
        if body is None:
            return []
        return compare_responses(message.message, body, labels=("stream", "body"), ignore=ignore)
    accumulated = ResponseAccumulator()
    for value in values:
        accumulated.feed(value)
    findings = []
    if accumulated.terminal is not None:
        findings += compare_responses(
            accumulated.response, accumulated.terminal, same_answer=True, labels=("deltas", "terminal event")
        )
    if body is not None:
        findings += compare_responses(
            accumulated.terminal or accumulated.response, body, labels=("stream", "body"), ignore=ignore
        )
    return findings
