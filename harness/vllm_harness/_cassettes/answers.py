"""Converts recorded exchanges to `Exchange` objects and answers, and received answers to recorded ones."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

from vllm_harness._cassettes.format import RecordedChunk, RecordedExchange, RecordedResponse
from vllm_harness._exchange.answer import Answer, answer_to
from vllm_harness._protocol import Exchange
from vllm_harness._protocol.conversation.exchange import EVENT_STREAM

ERROR = 400


def exchange_of(recorded: RecordedExchange) -> Exchange:
    """Converts a recorded exchange to an `Exchange`."""
    request, response = recorded.request, recorded.response
    sent = request.body if isinstance(request.body, dict) else {}
    asked = Exchange(sent, method=request.method, path=request.path)
    if response.sse is not None:
        chunks = ((chunk.at, chunk.content) for chunk in response.sse)
        headers = {**response.headers, "content-type": EVENT_STREAM}
        return asked.answered(response.status, headers, chunks, response.broken)
    body = response.body if isinstance(response.body, dict) else None
    return replace(asked, body=body, status=response.status, broken=response.broken)


def answer_of(recorded: RecordedExchange) -> Answer | None:
    """The meaning of a recorded answer; None if its API is unknown."""
    return answer_to(exchange_of(recorded))


def response_of(exchange: Exchange) -> RecordedResponse:
    """Converts an exchange's answer to a `RecordedResponse`."""
    seconds = exchange.chunks[-1].at_s if exchange.chunks else None
    came = partial(
        RecordedResponse,
        status=exchange.status,
        headers=dict(exchange.headers),
        seconds=seconds,
        broken=exchange.broken,
    )
    if exchange.streamed:
        return came(sse=tuple(RecordedChunk(at=at, data=text_of(data)) for at, data in exchange.chunks))
    body = json_of(exchange.content)
    return came(body=body, text=text_of(exchange.content) if body is None and exchange.content else None)


def json_of(content: bytes) -> object:
    """Parses bytes as JSON; returns None if they are not valid JSON, or if YAML cannot store the value."""
    try:
        value: object = json.loads(content)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


def text_of(content: bytes) -> str | bytes:
    """Decodes bytes as UTF-8; returns them unchanged if they are not valid UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
