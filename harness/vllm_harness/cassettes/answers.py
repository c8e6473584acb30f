"""What a recorded exchange holds: its events, its body, and what its answer means."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import urlsplit

from vllm_harness.cassettes.format import Chunk, Exchange, Response
from vllm_harness.protocol import Exchange as ProtocolExchange
from vllm_harness.protocol import SSEEvent, parse_sse
from vllm_harness.protocol.core.events import Api, Json, as_json
from vllm_harness.scenarios.judging import added_up
from vllm_harness.scenarios.transports import TRANSPORTS
from vllm_harness.scenarios.transports.transport import Answer

ERROR = 400
_APIS: dict[str, Api] = {"/responses": "responses", "/chat/completions": "chat", "/messages": "messages"}


def api_of(exchange: Exchange) -> Api | None:
    """The API whose answers a request of this path and method gets; None where it is none that is known."""
    path = urlsplit(exchange.request.path).path.rstrip("/")
    posted = exchange.request.method == "POST"
    return next((api for end, api in _APIS.items() if posted and path.endswith(end)), None)


def events_of(response: Response) -> list[SSEEvent] | None:
    """The events of a stream; None where it is none."""
    if response.sse is None:
        return None
    return list(parse_sse(chunk.content for chunk in response.sse))


def json_events(response: Response) -> list[Json]:
    """The events of a stream that are JSON."""
    return [value for event in events_of(response) or () if (value := as_json(event)) is not None]


def body_of(response: Response) -> Json | None:
    """The JSON object of an answer, or what its stream adds up to; None where it is none."""
    if response.sse is not None:
        return added_up(json_events(response))
    return response.body if isinstance(response.body, dict) else None


def answer_of(exchange: Exchange) -> Answer | None:
    """What an answer means; None where its API is not known."""
    api, response = api_of(exchange), exchange.response
    if api is None:
        return None
    if response.broken or not 0 < response.status < ERROR:
        return Answer("failed" if response.broken or not response.status else "refused")
    body = body_of(response)
    return Answer("failed") if body is None else TRANSPORTS[api].answer(body)


def as_exchange(exchange: Exchange) -> ProtocolExchange:
    """The exchange as the validator takes it."""
    request, response = exchange.request, exchange.response
    body = response.body if isinstance(response.body, dict) else None
    return ProtocolExchange(
        request.body if isinstance(request.body, dict) else {},
        body,
        events_of(response),
        method=request.method,
        path=request.path,
        status=response.status,
    )


def is_stream(content_type: str) -> bool:
    """Whether an answer of this type is a stream of events."""
    return content_type.startswith("text/event-stream")


def response_of(status: int, headers: dict[str, str], chunks: Sequence[Chunk], broken: str = "") -> Response:
    """An answer from its bytes."""
    seconds = chunks[-1].at if chunks else None
    names = {name.lower(): value for name, value in headers.items()}
    if is_stream(names.get("content-type", "")):
        return Response(status=status, headers=headers, seconds=seconds, sse=tuple(chunks), broken=broken)
    content = b"".join(chunk.content for chunk in chunks)
    body = json_of(content)
    text = None if body is not None or not content else text_of(content)
    return Response(status=status, headers=headers, seconds=seconds, body=body, text=text, broken=broken)


def json_of(content: bytes) -> object:
    """The JSON value of bytes; None where they are none, or none that YAML can hold."""
    try:
        value: object = json.loads(content)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


def text_of(content: bytes) -> str | bytes:
    """Bytes as a text where they are UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
