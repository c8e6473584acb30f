"""An answer of a server as one JSON document, which conditions are written over."""

from __future__ import annotations

import json

from vllm_harness.protocol import Exchange
from vllm_harness.protocol.conversation.exchange import accumulate
from vllm_harness.protocol.core.events import Json


def document(exchange: Exchange) -> Json:
    """What came back.

    Returns:
        `status`, `headers`, `broken` if so; `events` and `stream` of a stream; `body` of JSON, else `text`.
    """
    broken = {"broken": exchange.broken} if exchange.broken else {}
    begin = {"status": exchange.status, "headers": dict(exchange.headers), **broken}
    if exchange.streamed:
        events = exchange.json_events
        return {**begin, "events": events, "stream": accumulate(events).body}
    try:
        return {**begin, "body": json.loads(exchange.content)}
    except ValueError:
        return {**begin, "text": exchange.content.decode("utf-8", "replace")}
