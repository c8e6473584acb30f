"""Renders finished items as a valid Responses stream; the inverse of the accumulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vllm_harness._protocol.core.events import Json, numbered
from vllm_harness._protocol.core.split import Split, halves
from vllm_harness._protocol.responses import schema

# The number of progress events that come before the arguments, by type of item.
_BEFORE_TEXT = {"mcp_call": 1, "code_interpreter_call": 1}


def response(output: Sequence[Json] = (), status: str = "completed", **fields: Any) -> Json:
    """A response object, with the fields that OpenAI sends."""
    ended = status in ("completed", "incomplete")
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 16,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": status,
        "background": False,
        "completed_at": 1700000002 if status == "completed" else None,
        "error": {"code": "server_error", "message": "it broke"} if status == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": None,
        "model": "gpt-5",
        "output": list(output),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "low", "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage if ended else None,
        "user": None,
        "metadata": {},
        **fields,
    }


def response_events(
    items: Sequence[Json], *, status: str = "completed", background: bool = False, split: Split = halves
) -> list[Json]:
    """Renders the stream of a response.

    Args:
        items: the finished output items.
        status: the final status: completed, incomplete or failed.
        background: whether the response is queued first.
        split: splits a text into the deltas that carry it.
    """
    first = "queued" if background else "in_progress"
    events = [{"type": "response.created", "response": response(status=first)}]
    if background:
        events.append({"type": "response.queued", "response": response(status="queued")})
    events.append({"type": "response.in_progress", "response": response(status="in_progress")})
    for index, item in enumerate(items):
        events += _item_events(item, index, split)
    events.append({"type": f"response.{status}", "response": response(items, status)})
    return numbered(events)


def _item_events(item: Json, index: int, split: Split) -> Iterator[Json]:
    kind = str(item["type"])
    yield {"type": "response.output_item.added", "output_index": index, "item": _as_added(item)}
    steps = [step for group in schema.PROGRESS.get(kind, ()) for step in group if step != "failed"]
    early = _BEFORE_TEXT.get(kind, 0)
    place = {"item_id": item.get("id"), "output_index": index}
    yield from (_progress(kind, step, place) for step in steps[:early])
    for parts in schema.PART_KINDS:
        if kind in parts.types:
            for number, part in enumerate(item.get(parts.item_key) or ()):
                yield from _part_events(parts, part, {**place, parts.index_key: number}, split)
    channel = schema.CHANNEL_OF_ITEM.get(kind)
    if channel is not None:
        yield from _item_text_events(channel, item, place, split)
    yield from (_progress(kind, step, place) for step in steps[early:])
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _as_added(item: Json) -> Json:
    added = dict(item)
    for key in schema.EMPTY_AT_ADDED.get(str(item["type"]), ()):
        if added.get(key):
            added[key] = type(added[key])()
    if "status" in added:
        added["status"] = "in_progress"
    return added


def _progress(kind: str, step: str, place: Json) -> Json:
    event = {"type": f"response.{kind}.{step}", **place}
    return (
        {**event, "partial_image_index": 0, "partial_image_b64": "aGk="} if step == "partial_image" else event
    )


def _part_events(kind: schema.PartKind, part: Json, place: Json, split: Split) -> Iterator[Json]:
    channel = schema.CHANNEL_OF_PART[part["type"]]
    key = channel.item_path[0]
    empty = {name: [] if isinstance(value, list) else value for name, value in part.items()} | {key: ""}
    extra: Json = {"logprobs": []} if part["type"] == "output_text" else {}
    yield {"type": f"{kind.prefix}.added", **place, "part": empty}
    for delta in split(part[key]):
        yield {"type": f"{channel.prefix}.delta", **place, "delta": delta, **extra}
    for number, annotation in enumerate(part.get("annotations", ())):
        yield {
            "type": "response.output_text.annotation.added",
            **place,
            "annotation_index": number,
            "annotation": annotation,
        }
    yield {"type": f"{channel.prefix}.done", **place, channel.field: part[key], **extra}
    yield {"type": f"{kind.prefix}.done", **place, "part": part}


def _item_text_events(channel: schema.Channel, item: Json, place: Json, split: Split) -> Iterator[Json]:
    value: Any = item
    for key in channel.item_path:
        value = value.get(key) if isinstance(value, dict) else None
    if channel.index_key:
        for number, text in enumerate(value or ()):
            where = {"output_index": place["output_index"], channel.index_key: number}
            yield {"type": f"{channel.prefix}.added", **where, channel.field: ""}
            yield from _text_events(channel, text, where, split)
    elif isinstance(value, str):
        yield from _text_events(channel, value, place, split)


def _text_events(channel: schema.Channel, text: str, place: Json, split: Split) -> Iterator[Json]:
    for delta in split(text):
        yield {"type": f"{channel.prefix}.delta", **place, "delta": delta}
    yield {"type": f"{channel.prefix}.done", **place, channel.field: text}


def message(text: str, identifier: str = "msg_1", annotations: Sequence[Json] = (), **fields: Any) -> Json:
    """A message item."""
    part = {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}
    return {
        "id": identifier,
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
        **fields,
    }


def function_call(arguments: str, name: str = "get_weather", number: int = 1, **fields: Any) -> Json:
    """A function call item."""
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": arguments,
        **fields,
    }


def reasoning(text: str = "", summary: Sequence[str] = (), identifier: str = "rs_1") -> Json:
    """A reasoning item, with raw text (open models) or with summaries (OpenAI)."""
    item: Json = {
        "id": identifier,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": part} for part in summary],
    }
    return {**item, "content": [{"type": "reasoning_text", "text": text}]} if text else item
