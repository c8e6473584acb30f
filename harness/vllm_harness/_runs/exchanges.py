"""Exchanges as records of a run folder."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import JsonValue

from vllm_harness._protocol import Exchange
from vllm_harness._runs.records import Arrival, ExchangeRecord

LONGEST_BODY = 8 * 2**20


def record_of(exchange: Exchange, **more: Any) -> ExchangeRecord:
    """The record of an exchange.

    Args:
        exchange: as it was.
        more: the record's fields that the exchange does not have, or has otherwise.
    """
    own = {
        "api": exchange.api or "",
        "method": exchange.method,
        "path": exchange.path,
        "request": dict(exchange.request),
        "status": exchange.status or None,
        "answer_headers": {name: value for name, value in exchange.headers.items() if name == "content-type"},
        "answer": None if exchange.streamed else json_value(exchange.content),
        "stream": tuple(_arrivals(exchange.chunks)) if exchange.streamed else (),
        "seconds": None if exchange.seconds is None else round(exchange.seconds, 6),
        "error": exchange.broken,
    }
    return ExchangeRecord(**{**own, **more})


def json_value(content: bytes) -> JsonValue:
    """A body as JSON where it is JSON, else as text; nothing where it is empty."""
    if not content:
        return None
    text = content[:LONGEST_BODY].decode(errors="replace")
    if len(content) > LONGEST_BODY:
        return f"{text}... {len(content) - LONGEST_BODY} bytes more"
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _arrivals(chunks: Iterable[tuple[float, bytes]]) -> Iterator[Arrival]:
    """The pieces of a stream as text; a character that a piece cuts belongs to the next one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    left = LONGEST_BODY
    after = 0.0
    for after, chunk in chunks:
        if len(chunk) > left:
            yield Arrival(after=round(after, 6), text=f"... more than {LONGEST_BODY} bytes")
            return
        left -= len(chunk)
        yield Arrival(after=round(after, 6), text=decoder.decode(chunk))
    if cut := decoder.decode(b"", final=True):
        yield Arrival(after=round(after, 6), text=cut)
