"""Renders finished messages as a valid chat stream or body; the inverse of the accumulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_harness._protocol.chat import schema
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.split import Split, halves

USAGE = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}


def completion_chunks(
    messages: Sequence[Json], *, finish: str = "", usage: Json | None = None, split: Split = halves
) -> list[Json]:
    """Renders a Chat Completions stream with one choice for each message.

    Args:
        messages: the assistant messages: content, refusal, reasoning, tool_calls.
        finish: the finish reason; if empty, the one that fits each message.
        usage: the usage to send in a last chunk; None to send no such chunk.
        split: splits a text into the deltas that carry it.
    """
    chunks = []
    for index, message in enumerate(messages):
        for delta in _message_deltas(message, split):
            chunks.append(_chunk([{"index": index, "delta": delta, "finish_reason": None}]))
        fitting = finish or ("tool_calls" if message.get("tool_calls") else "stop")
        chunks.append(_chunk([{"index": index, "delta": {}, "finish_reason": fitting}]))
    return chunks if usage is None else [*chunks, {**_chunk([]), "usage": usage}]


def _chunk(choices: list[Json]) -> Json:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "gpt-5",
        "choices": choices,
    }


def _message_deltas(message: Json, split: Split) -> Iterator[Json]:
    calls = message.get("tool_calls") or ()
    yield {"role": "assistant", "content": None if calls else ""}
    for key in schema.TEXT_KEYS:
        for piece in split(message.get(key) or ""):
            yield {key: piece}
    for number, call in enumerate(calls):
        kind = call["type"]
        key = "input" if kind == "custom" else "arguments"
        body = call[kind]
        yield {"tool_calls": [{"index": number, "id": call["id"], "type": kind, kind: {**body, key: ""}}]}
        for piece in split(body[key]):
            yield {"tool_calls": [{"index": number, kind: {key: piece}}]}


def completion(messages: Sequence[Json], *, finish: str = "", usage: Json | None = None) -> Json:
    """Renders a Chat Completions body with one choice for each message."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": None, **message},
            "finish_reason": finish or ("tool_calls" if message.get("tool_calls") else "stop"),
            "logprobs": None,
        }
        for index, message in enumerate(messages)
    ]
    counts = usage or dict(USAGE)
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "gpt-5",
        "choices": choices,
        "usage": counts,
    }
