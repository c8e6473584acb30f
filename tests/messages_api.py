"""Helpers for tests of Anthropic's Messages API: every answer, body or stream, is validated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest
from requests import Response

from tests.behaviours.tools import DESCRIPTION, PARAMETERS
from tests.body_and_stream import body_and_stream
from tests.lost_calls import checks_for
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import MessageAccumulator, SSEEvent, parse_sse
from vllm_harness._testing.fixtures import ScriptWriter

if TYPE_CHECKING:  # the import takes two seconds, too much for runs that do not need it
    from anthropic import Anthropic
    from anthropic.types import Message

TOOL: dict[str, Any] = {"name": "get_weather", "description": DESCRIPTION, "input_schema": PARAMETERS}
NO_STOP_SEQUENCE = ("stop_sequence",)  # vLLM's bodies omit the field when it is null


@dataclass(frozen=True)
class Stream:
    """The events of a whole stream, as received."""

    events: list[SSEEvent]

    @property
    def values(self) -> list[dict[str, Any]]:
        """The parsed data of all events."""
        return [json.loads(event.data) for event in self.events]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Returns the events of a type."""
        return [value for value in self.values if value["type"] == kind]

    @property
    def message(self) -> dict[str, Any]:
        """The message that the events add up to."""
        accumulator = MessageAccumulator()
        for event in self.events:
            accumulator.feed(event)
        return accumulator.message


@dataclass(frozen=True)
class Messages:
    """A server's Messages API; requests use greedy sampling and name the server's model.

    Attributes:
        client: an SDK client whose requests are answered by the test's scripts.
        http: the server's endpoint for requests without an SDK, also answered by the test's scripts.
        model: the model's name on the server.
        check: returns the plugin's check with a name (`check_body`, `check_stream`, `check_same`).
        exact: whether the answers are scripted.
    """

    client: Anthropic
    http: Endpoint
    model: str
    check: Callable[[str], Callable[..., None]]
    exact: bool = True

    def create(self, messages: Any, **more: Any) -> Message:
        """Requests a body and validates it."""
        message = self._body(messages, more)
        self.check("check_body")(message)
        return message

    def stream(self, messages: Any, **more: Any) -> Stream:
        """Requests a stream and validates it, including its framing."""
        stream = self._stream(messages, more)
        self.check("check_stream")(stream.events, api="messages")
        return stream

    def both(self, messages: Any, **more: Any) -> tuple[Message, Stream]:
        """Requests a body and a stream, which must match; the two requests use a script twice."""
        body, stream = body_and_stream(
            lambda: self._body(messages, more), lambda: self._stream(messages, more), exact=self.exact
        )
        self.check("check_body")(body)
        self.check("check_stream")(stream.events, api="messages")
        ignore = () if body.stop_sequence else NO_STOP_SEQUENCE
        self.check("check_same")(stream.events, body, ignore=ignore)
        return body, stream

    def _body(self, messages: Any, more: dict[str, Any]) -> Message:
        message: Message = self.client.messages.create(**for_sdk(self.request(messages, more)))
        return message

    def _stream(self, messages: Any, more: dict[str, Any]) -> Stream:
        raw = self.client.messages.with_streaming_response
        with raw.create(**for_sdk(self.request(messages, more)), stream=True) as response:
            return Stream(list(parse_sse(response.iter_bytes())))

    def count(self, messages: Any, **more: Any) -> int:
        """Returns the result of count_tokens."""
        request = for_sdk({"model": self.model, "messages": message_list(messages), **more})
        return self.client.messages.count_tokens(**request).input_tokens

    def request(self, messages: Any, more: dict[str, Any]) -> dict[str, Any]:
        """Returns a request as JSON."""
        return {
            "model": self.model,
            "messages": message_list(messages),
            "max_tokens": 200,
            "temperature": 0,
            **more,
        }

    def post(self, body: Any, *, path: str = "", raw: bytes | None = None) -> Response:
        """Posts a request body that the SDK might refuse to send; returns the HTTP answer."""
        data = json.dumps(body).encode() if raw is None else raw
        headers = {"content-type": "application/json"}
        return self.http.post(f"/v1/messages{path}", data=data, headers=headers, timeout=60)

    def refused(self, status: int, **more: Any) -> dict[str, Any]:
        """Returns the error of a request; checks the status, and that form and type are Anthropic's."""
        answer = self.post(self.request("Hi", more))
        assert answer.status_code == status, answer.text
        error: dict[str, Any] = answer.json()
        self.check("check_body")(error, api="messages")
        return error


def for_sdk(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `messages.create`; fields unknown to the SDK go into the body unchanged."""
    known = _of_sdk()
    extra = {key: value for key, value in request.items() if key not in known}
    return {**{key: value for key, value in request.items() if key in known}, "extra_body": extra}


@cache
def _of_sdk() -> frozenset[str]:
    from anthropic.resources.messages import Messages

    return frozenset(signature(Messages.create).parameters)


def message_list(messages: Any) -> list[Any]:
    """Returns the messages of a request; a string is one user message."""
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


def text_of(message: Message) -> str:
    """Returns the text of all text blocks, without surrounding whitespace."""
    return "".join(block.text for block in message.content if block.type == "text").strip()


def kinds(message: Message) -> list[str]:
    """Returns the types of the content blocks; omits the empty thinking that some families always write."""
    return [block.type for block in message.content if block.type != "thinking" or block.thinking.strip()]


@contextmanager
def messages_on(
    http: Endpoint, model: str, check: Callable[[str], Callable[..., None]], *, exact: bool = True
) -> Iterator[Messages]:
    """Returns the Messages API of a server, with requests sent to an endpoint such as a script book's."""
    from anthropic import Anthropic, DefaultHttpxClient

    client = Anthropic(
        base_url=http.base_url,
        api_key=http.api_key,
        timeout=http.request_s,
        max_retries=0,
        default_headers=dict(http.headers),
        http_client=DefaultHttpxClient(**http.connecting),
    )
    with client:
        yield Messages(client, http, model, check, exact)


@pytest.fixture
def messages(
    vllm_server: VllmServer, http: Endpoint, script: ScriptWriter, request: pytest.FixtureRequest
) -> Iterator[Messages]:
    """The server's Messages API."""
    check = checks_for(request, vllm_server)
    with messages_on(http, vllm_server.model, check, exact=script.exact) as api:
        yield api
