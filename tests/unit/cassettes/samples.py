"""Builds cassettes with valid requests and answers for tests."""

from __future__ import annotations

import json
from typing import Any

from vllm_harness._cassettes.format import (
    Cassette,
    Recorded,
    RecordedChunk,
    RecordedExchange,
    RecordedRequest,
    RecordedResponse,
)
from vllm_harness._protocol.responses.render import response_events

PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"city": "Paris"}',
    "status": "completed",
}
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": True}


def message(text: str, number: int = 1) -> dict[str, Any]:
    """A message item of a response, with one text part."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
    return {**item, "content": [part]}


def response(identifier: str, *items: dict[str, Any], previous: str | None = None) -> dict[str, Any]:
    """A valid response body of the Responses API with these items."""
    body = response_events(list(items))[-1]["response"]
    return {**body, "id": identifier, "previous_response_id": previous}


def exchange(
    turn: str, request: dict[str, Any], body: dict[str, Any], after: str | None = None
) -> RecordedExchange:
    """An exchange over the Responses API without streaming."""
    return RecordedExchange(
        turn=turn,
        after=after,
        request=RecordedRequest(path=PATHS["responses"], body={"model": "m", **request}),
        response=RecordedResponse(
            status=200, headers={"content-type": "application/json"}, seconds=0.1, body=body
        ),
    )


def streamed(
    turn: str, request: dict[str, Any], events: list[dict[str, Any]], size: int = 0
) -> RecordedExchange:
    """A streamed exchange over the Responses API, in chunks of `size` characters; if 0, of one event."""
    blocks = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    if size:
        whole = "".join(blocks)
        blocks = [whole[at : at + size] for at in range(0, len(whole), size)]
    chunks = tuple(RecordedChunk(at=number / 100, data=block) for number, block in enumerate(blocks, start=1))
    return RecordedExchange(
        turn=turn,
        request=RecordedRequest(path=PATHS["responses"], body={"model": "m", "stream": True, **request}),
        response=RecordedResponse(
            status=200, headers={"content-type": "text/event-stream"}, seconds=chunks[-1].at, sse=chunks
        ),
    )


def conversation(**recorded: Any) -> Cassette:
    """A cassette with two turns: a tool call, and the answer to the tool's output."""
    call = exchange("ask", {"input": "Weather in Paris?", "tools": [TOOL]}, response("resp_1", CALL))
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    answer = exchange(
        "answer",
        {"input": [output], "previous_response_id": "resp_1", "tools": [TOOL]},
        response("resp_2", message("It is sunny."), previous="resp_1"),
        after="ask",
    )
    return of(call, answer, **recorded)


def of(*exchanges: RecordedExchange, **recorded: Any) -> Cassette:
    """A cassette with these exchanges."""
    return Cassette(
        cassette=1, title="a test", recorded=Recorded(**recorded), exchanges=exchanges, count=len(exchanges)
    )
