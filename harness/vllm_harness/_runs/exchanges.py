"""Converts HTTP exchanges to records of a run folder."""

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
    """Makes the record of an exchange.

    Args:
        exchange: the exchange.
        more: further fields of the record; they override those made from the exchange.
    """
    fields = {
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
    return ExchangeRecord(**{**fields, **more})


def json_value(content: bytes) -> JsonValue:
    """Parses a body as JSON; returns its text if it is not valid JSON, and None if it is empty."""
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
    """Decodes the chunks of a stream; a character split between two chunks goes to the later one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    room = LONGEST_BODY
    after = 0.0
    for after, chunk in chunks:
        if len(chunk) > room:
            yield Arrival(after=round(after, 6), text=f"... more than {LONGEST_BODY} bytes")
            return
        room -= len(chunk)
        yield Arrival(after=round(after, 6), text=decoder.decode(chunk))
    if rest := decoder.decode(b"", final=True):
        yield Arrival(after=round(after, 6), text=rest)
