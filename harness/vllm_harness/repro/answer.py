"""An answer of a server as one JSON document, which conditions are written over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from vllm_harness.protocol.chat.accumulate import ChatAccumulator
from vllm_harness.protocol.conversation.compare import accumulate
from vllm_harness.protocol.core.events import Json, as_json
from vllm_harness.protocol.core.sse import parse_sse
from vllm_harness.protocol.messages.accumulate import MessageAccumulator
from vllm_harness.protocol.responses.accumulate import ResponseAccumulator


def document(status: int, content_type: str, content: Iterable[bytes]) -> Json:
    """What came back.

    Args:
        status: of HTTP.
        content_type: of the answer.
        content: its bytes, in any chunks.

    Returns:
        `status`; and `events` and `stream` of a stream, `body` of JSON, else `text`.
    """
    if content_type.startswith("text/event-stream"):
        events = [value for event in parse_sse(content) if (value := as_json(event)) is not None]
        return {"status": status, "events": events, "stream": added_up(events)}
    raw = b"".join(content)
    try:
        return {"status": status, "body": json.loads(raw)}
    except ValueError:
        return {"status": status, "text": raw.decode("utf-8", "replace")}


def added_up(events: Sequence[Json]) -> Json:
    """The body that the events of a stream add up to, of any API."""
    match accumulate(events):
        case ChatAccumulator() as chat:
            return chat.completion
        case MessageAccumulator() as message:
            return message.message
        case ResponseAccumulator() as response:
            return response.response
