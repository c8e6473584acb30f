"""Renders content blocks as a valid Messages stream or body; the inverse of the accumulator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.split import Split, halves
from vllm_harness._protocol.messages import schema

USAGE = {"input_tokens": 9, "output_tokens": 7}


def answer(content: Sequence[Json], stop_reason: str = "", **fields: Any) -> Json:
    """Renders a message as a body; by default its stop_reason follows from its blocks."""
    called = any(block["type"] == "tool_use" for block in content)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": list(content),
        "model": "claude-sonnet-5",
        "stop_reason": stop_reason or ("tool_use" if called else "end_turn"),
        "stop_sequence": None,
        "usage": dict(USAGE),
        **fields,
    }


def answer_events(content: Sequence[Json], *, split: Split = halves, **fields: Any) -> list[Json]:
    """Renders a message as the events of a stream; `fields` are those of `answer`."""
    whole = answer(content, **fields)
    head = {
        **whole,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**whole["usage"], "output_tokens": 1},
    }
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
    events: list[Json] = [{"type": "message_start", "message": head}, {"type": "ping"}]
    for index, block in enumerate(content):
        events += _block_events(block, index, split)
    return [
        *events,
        {
            "type": "message_delta",
            "delta": ending,
            "usage": {"output_tokens": whole["usage"]["output_tokens"]},
        },
        {"type": "message_stop"},
    ]


def text(content: str) -> Json:
    """A text block."""
    return {"type": "text", "text": content}


def thinking(content: str, signature: str = "c2lnbmF0dXJl") -> Json:
    """A thinking block."""
    return {"type": "thinking", "thinking": content, "signature": signature}


def tool_use(arguments: Json, name: str = "get_weather", number: int = 1) -> Json:
    """A tool_use block."""
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}


def _block_events(block: Json, index: int, split: Split) -> Iterator[Json]:
    kind = block["type"]
    growing = schema.BLOCKS[kind].growing
    first = {**block, growing: {} if kind in schema.CALLS else ""} if growing else dict(block)
    if kind == "thinking":
        first["signature"] = ""
    yield {"type": "content_block_start", "index": index, "content_block": first}
    for delta in _deltas(block, growing, split):
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _deltas(block: Json, growing: str, split: Split) -> Iterator[Json]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in split(block["text"]))
        case "thinking":
            for piece in split(block["thinking"]):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use" | "server_tool_use":
            whole = json.dumps(block[growing], ensure_ascii=False)
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in split(whole))
