"""An answer of a server as one JSON document, which conditions are written over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from vllm_harness.protocol.chat.accumulate import ChatAccumulator
from vllm_harness.protocol.conversation.compare import accumulate
from vllm_harness.protocol.core.events import Json, as_json
from vllm_harness.protocol.core.sse import parse_sse
from vllm_harness.protocol.messages.accumulate import MessageAccumulator
from vllm_harness.protocol.responses.accumulate import ResponseAccumulator


def document(status: int, headers: Mapping[str, str], content: Iterable[bytes], broken: str = "") -> Json:
    """What came back.

    Args:
        status: of HTTP; 0: no answer.
        headers: of the answer.
        content: its bytes, in any chunks.
        broken: how it ended, where it did not end well.

    Returns:
        `status`, `headers`, `broken` if so; `events` and `stream` of a stream; `body` of JSON, else `text`.
    """
    known = {name.lower(): value for name, value in headers.items()}
    begin = {"status": status, "headers": known, **({"broken": broken} if broken else {})}
    if known.get("content-type", "").startswith("text/event-stream"):
        events = [value for event in parse_sse(content) if (value := as_json(event)) is not None]
        return {**begin, "events": events, "stream": added_up(events)}
    raw = b"".join(content)
    try:
        return {**begin, "body": json.loads(raw)}
    except ValueError:
        return {**begin, "text": raw.decode("utf-8", "replace")}


def added_up(events: Sequence[Json]) -> Json:
    """The body that the events of a stream add up to, of any API."""
    match accumulate(events):
        case ChatAccumulator() as chat:
            return chat.completion
        case MessageAccumulator() as message:
            return message.message
        case ResponseAccumulator() as response:
            return response.response
