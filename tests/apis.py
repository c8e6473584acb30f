"""Sends requests to the three APIs over plain HTTP, for tests that use the same request on each API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import httpx2
import pytest
from openai import OpenAI
from requests import Response

from vllm_harness._exchange.endpoint import Endpoint, api_at, tls
from vllm_harness._protocol import ChatAccumulator, MessageAccumulator, ResponseAccumulator, parse_sse

Json = dict[str, Any]
Api = Literal["responses", "chat", "messages"]
Said = tuple[str, list[tuple[str, Any]]]
"""The text of an answer without surrounding whitespace, and the name and arguments of each call."""

APIS: tuple[Api, ...] = get_args(Api)
PATHS: dict[Api, str] = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
}
AT_ONCE = 32
KEYLESS = {"authorization": None, "x-api-key": None}
"""Headers that remove the API key from a request."""


def endpoint_of(client: OpenAI) -> Endpoint:
    """Returns the endpoint of an SDK client: its URL, key, timeout, headers and trusted certificates."""
    url = str(client.base_url).rstrip("/").removesuffix("/v1")
    limit = client.timeout if isinstance(client.timeout, (int, float)) else Endpoint.request_s
    context = client._client._transport._pool._ssl_context  # type: ignore[attr-defined]
    return Endpoint(url, client.api_key, limit, tuple(client._custom_headers.items()), context.ca)


@pytest.fixture
def http(openai_client: OpenAI) -> Endpoint:
    """The server's endpoint for requests without an SDK; the test's scripts determine the answers."""
    return endpoint_of(openai_client)


@contextmanager
def opened(endpoint: Endpoint, method: str, path: str, **options: Any) -> Iterator[httpx2.Response]:
    """Streams an answer; raises httpx2.ReadTimeout if nothing arrives for `timeout` seconds."""
    options = {"timeout": endpoint.request_s, "verify": tls(endpoint.ca), **options}
    headers = endpoint.headers_for(api_at(path))
    with httpx2.stream(method, endpoint.url_for(path), headers=headers, **options) as answer:
        yield answer


def question(api: Api, words: str = "Hi") -> Json:
    """Returns a minimal request body: the user's text and the other fields that the API requires."""
    if api == "responses":
        return {"input": words}
    limit = {"max_tokens": 64} if api == "messages" else {}
    return {"messages": [{"role": "user", "content": words}], **limit}


def request_fields(described: Json, api: Api) -> Json:
    """Returns the fields of an API's request, each with its schema, from the server's `/openapi.json`."""
    body = described["paths"][PATHS[api]]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields: Json = described["components"]["schemas"][body["$ref"].rpartition("/")[2]]["properties"]
    return fields


def said(api: Api, answer: Response) -> Said:
    """Returns the text and calls of an answer, which is a body or a whole stream."""
    streamed = answer.headers["content-type"].startswith("text/event-stream")
    return said_by(api, accumulated(api, answer) if streamed else answer.json())


def said_by(api: Api, body: Json) -> Said:
    """Returns the text and calls of a body, or of the body that a stream adds up to."""
    return _SAID[api](body)


def thoughts_of(api: Api, body: Json) -> str:
    """Returns the reasoning in a body, or in the body that a stream adds up to."""
    match api:
        case "responses":
            items = [item for item in body["output"] if item["type"] == "reasoning"]
            return "".join(part["text"] for item in items for part in item["content"] or ())
        case "chat":
            return body["choices"][0]["message"].get("reasoning") or ""
        case "messages":
            return "".join(block["thinking"] for block in body["content"] if block["type"] == "thinking")


def error_message(answer: Response) -> str:
    """Returns the message of an error body or of an error that ends a stream; empty if there is no error."""
    last = answer.content.decode().rsplit("data: ", 1)[-1]
    try:
        value = json.loads(last)
    except ValueError:
        return ""
    error = value.get("error") if isinstance(value, dict) else None
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def accumulated(api: Api, answer: Response) -> Json:
    """Returns the body that the events of a stream add up to."""
    accumulator = _ACCUMULATORS[api]()
    for event in parse_sse([answer.content]):
        accumulator.feed(event)
    match accumulator:
        case ChatAccumulator():
            return accumulator.completion
        case MessageAccumulator():
            return accumulator.message
        case ResponseAccumulator():
            return {"output": accumulator.output}


def _of_responses(body: Json) -> Said:
    parts = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
    calls = [item for item in body["output"] if item["type"] == "function_call"]
    words = "".join(part["text"] for part in parts)
    return words.strip(), [(call["name"], json.loads(call["arguments"])) for call in calls]


def _of_chat(body: Json) -> Said:
    message = body["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    words = message.get("content") or ""
    return words.strip(), [(call["name"], json.loads(call["arguments"])) for call in calls]


def _of_messages(body: Json) -> Said:
    words = "".join(block["text"] for block in body["content"] if block["type"] == "text")
    calls = [block for block in body["content"] if block["type"] == "tool_use"]
    return words.strip(), [(call["name"], call["input"]) for call in calls]


_SAID: dict[Api, Callable[[Json], Said]] = {
    "responses": _of_responses,
    "chat": _of_chat,
    "messages": _of_messages,
}
_ACCUMULATORS: dict[Api, type[ChatAccumulator | MessageAccumulator | ResponseAccumulator]] = {
    "responses": ResponseAccumulator,
    "chat": ChatAccumulator,
    "messages": MessageAccumulator,
}


def known_row(mark: pytest.MarkDecorator, api: Api, row: Any, *parts: Any) -> Any:
    """Returns a pytest parameter for a row, or part of a row, on which an API shows a known defect.

    Args:
        mark: the mark for the defect.
        api: the API that shows the defect.
        row: a table row with an id, the capabilities that it needs, and the behaviours that it covers.
        parts: the parts of the row, each with an id.
    """
    marks = [mark, pytest.mark.vllm_needs(api, *row.needs), pytest.mark.covers(*row.covers)]
    return pytest.param(
        api, row, *parts, id="-".join([api, *(each.id for each in (row, *parts))]), marks=marks
    )
