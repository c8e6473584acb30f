"""A plain HTTP client, which shows the nulls, missing keys and broken streams that an SDK would hide."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
from requests import Response

from tests.apis import opened
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._protocol import parse_sse

SHOW_PROMPT = {"enable_response_messages": True}  # vLLM's own parameter: the response contains the prompt
QUIET_S = 60.0  # a request that gets no answer within this time has failed
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Current weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOL: dict[str, Any] = {"type": "function", **WEATHER}
CHAT_TOOL: dict[str, Any] = {"type": "function", "function": WEATHER}
TERMINAL = ("response.completed", "response.incomplete", "response.failed")

NO_SCRIPT = "no script matches"

Json = dict[str, Any]


@dataclass(frozen=True)
class Wire:
    """Sends requests to a server's model, which the test's scripts answer.

    Attributes:
        http: the endpoint; a request fails if nothing arrives for QUIET_S.
        model: the model's name, which every request contains.
    """

    http: Endpoint
    model: str

    def post(self, path: str, **body: Any) -> Response:
        """Sends a POST request to a path below `/v1` and returns the answer, whatever its status."""
        return self.http.post(f"/v1/{path}", json={"model": self.model, **body})

    def respond(self, input: Any, **more: Any) -> Json:
        """Returns the body of a Responses answer."""
        return accepted(self.post("responses", input=input, **more))

    def chat(self, prompt: str, **more: Any) -> Json:
        """Returns the body of a Chat Completions answer."""
        return accepted(self.post("chat/completions", messages=[{"role": "user", "content": prompt}], **more))

    def stream(self, input: Any, **more: Any) -> list[Json]:
        """Returns the events of a whole Responses stream."""
        with self.open(input, **more) as events:
            return list(events)

    def chat_stream(self, prompt: str, **more: Any) -> list[Json]:
        """Returns the chunks of a whole Chat Completions stream."""
        messages = [{"role": "user", "content": prompt}]
        body = {"model": self.model, "messages": messages, "stream": True, **more}
        with self._events("POST", "/v1/chat/completions", json=body) as chunks:
            return list(chunks)

    def replay(self, response_id: str, **query: Any) -> list[Json]:
        """Streams a stored response again and returns its events."""
        path, params = f"/v1/responses/{response_id}", {"stream": "true", **query}
        with self._events("GET", path, params=params, timeout=QUIET_S) as events:
            return list(events)

    @contextlib.contextmanager
    def open(self, input: Any, **more: Any) -> Iterator[Iterator[Json]]:
        """Opens a Responses stream, read event by event; it fails if nothing arrives for QUIET_S."""
        body = {"model": self.model, "input": input, "stream": True, **more}
        with self._events("POST", "/v1/responses", json=body, timeout=QUIET_S) as events:
            yield events

    @contextlib.contextmanager
    def _events(self, method: str, path: str, **options: Any) -> Iterator[Iterator[Json]]:
        with opened(self.http, method, path, **options) as answer:
            if answer.is_error:
                answer.read()
            accepted(answer, is_json=False)
            yield (json.loads(e.data) for e in parse_sse(answer.iter_bytes()) if e.data != "[DONE]")


def accepted(answer: Response | httpx2.Response, *, is_json: bool = True) -> Json:
    """Returns the body of an answer whose status must be 200."""
    assert answer.status_code == 200, f"HTTP {answer.status_code}: {answer.text[:300]}"
    return dict(answer.json()) if is_json else {}


def refused(answer: Response) -> Json:
    """Returns the error object of an answer with which vLLM must have refused the request (4xx).

    The harness's own 400 for a request without a script does not count, since vLLM accepted that request.
    """
    assert 400 <= answer.status_code < 500, f"HTTP {answer.status_code}: {answer.text[:300]}"
    error: Json = answer.json()["error"]
    assert isinstance(error["message"], str)
    assert NO_SCRIPT not in error["message"], "the request was taken"
    return error


def prompt_of(response: Json) -> str:
    """Returns the prompt that the model saw, as JSON; the request must contain SHOW_PROMPT."""
    return json.dumps(response["input_messages"], ensure_ascii=False)


def items(response: Json, kind: str) -> list[Json]:
    """Returns a response's output items with a type."""
    return [item for item in response["output"] if item["type"] == kind]


def text_of(response: Json) -> str:
    """Returns the text of a response's messages."""
    return "".join(part["text"] for item in items(response, "message") for part in item["content"])


def reasoning_of(response: Json) -> str:
    """Returns the text of a response's reasoning items."""
    return "".join(part["text"] for item in items(response, "reasoning") for part in item["content"])


def terminal(events: list[Json]) -> Json:
    """Returns the response of a stream's terminal event."""
    assert events, "a stream without events"
    assert events[-1]["type"] in TERMINAL, f"the stream ends with {events[-1]['type']}"
    response: Json = events[-1]["response"]
    return response


def message_of(completion: Json) -> Json:
    """Returns the message of a completion's only choice."""
    message: Json = completion["choices"][0]["message"]
    return message


def user(text: str) -> Json:
    """Returns a user message as an input item."""
    return {"type": "message", "role": "user", "content": text}
