"""Helpers for tests of the Responses API: every answer, body or stream, is validated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from requests import Response as Answer

from tests.apis import endpoint_of
from tests.body_and_stream import body_and_stream
from tests.lost_calls import checks_for
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._testing.fixtures import ScriptWriter

SHOW = {"enable_response_messages": True}  # vLLM's extension: the response contains the raw prompt and output
TERMINAL = ("response.completed", "response.incomplete", "response.failed")
IDS_MADE_AGAIN = pytest.mark.vllm_known_defect("vllm-47916")


@dataclass(frozen=True)
class Stream:
    """The events of a whole stream."""

    events: list[ResponseStreamEvent]

    @property
    def types(self) -> list[str]:
        """The types of all events."""
        return [event.type for event in self.events]

    @property
    def terminal(self) -> Response:
        """The response in the terminal event."""
        last = self.events[-1]
        assert last.type in TERMINAL, f"the stream ends with {last.type}"
        return last.response

    def of(self, *types: str) -> list[Any]:
        """Returns the events of these types, whose names are passed without `response.`."""
        return [event for event in self.events if event.type.removeprefix("response.") in types]

    def joined(self, channel: str) -> str:
        """Joins the deltas of one type (`output_text`, `reasoning_text` or `function_call_arguments`)."""
        return "".join(event.delta for event in self.of(f"{channel}.delta"))


@dataclass(frozen=True)
class Responses:
    """A server's Responses API; requests use greedy sampling and name the server's model.

    Attributes:
        client: an SDK client whose requests are answered by the test's scripts.
        model: the model's name on the server.
        check: returns the plugin's check with a name (`check_body`, `check_stream`, `check_same`).
        exact: whether the answers are scripted.
    """

    client: OpenAI
    model: str
    check: Callable[[str], Callable[..., None]]
    exact: bool = True

    def create(self, input: Any, **more: Any) -> Response:
        """Requests a body and validates it."""
        response = self._body(input, more)
        self.check("check_body")(response)
        return response

    def stream(self, input: Any, **more: Any) -> Stream:
        """Requests a stream and validates it."""
        stream = self._stream(input, more)
        self.check("check_stream")(stream.events)
        return stream

    def both(self, input: Any, *, but: Sequence[str] = (), **more: Any) -> tuple[Response, Stream]:
        """Requests a body and a stream, which must have the same content.

        Args:
            input: the input of the request.
            but: fields that are not compared, because another test compares them.
            more: further arguments of `responses.create`.
        """
        body, stream = body_and_stream(
            lambda: self._body(input, more), lambda: self._stream(input, more), exact=self.exact
        )
        self.check("check_body")(body)
        self.check("check_stream")(stream.events)
        self.check("check_same")(stream.events, body, ignore=but)
        return body, stream

    def _body(self, input: Any, more: dict[str, Any]) -> Response:
        response: Response = self.client.responses.create(**self.request(input, more))
        return response

    def _stream(self, input: Any, more: dict[str, Any]) -> Stream:
        return Stream(list(self.client.responses.create(**self.request(input, more), stream=True)))

    def request(self, input: Any, more: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments of `responses.create`."""
        return {"model": self.model, "input": input, "temperature": 0, **more}

    def post(
        self,
        body: Any = None,
        *,
        raw: bytes | None = None,
        timeout: float = 60,
        kind: str = "application/json",
    ) -> Answer:
        """Posts a request body that the SDK might refuse to send; returns the HTTP answer."""
        data = json.dumps(body).encode() if raw is None else raw
        return self.http.post("/v1/responses", data=data, headers={"content-type": kind}, timeout=timeout)

    @property
    def http(self) -> Endpoint:
        """The server's endpoint for requests without an SDK; the test's scripts determine the answers."""
        return endpoint_of(self.client)


@pytest.fixture
def responses(
    vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter, request: pytest.FixtureRequest
) -> Responses:
    """The server's Responses API."""
    check = checks_for(request, vllm_server)
    return Responses(openai_client, vllm_server.model, check, script.exact)


def prompt_of(response: Response) -> str:
    """Returns all text of the prompt that the model received, in order (requested with SHOW)."""
    assert response.model_extra is not None
    return "\n".join(_texts(response.model_extra["input_messages"]))


def messages_of(response: Response, side: str = "input") -> list[dict[str, Any]]:
    """Returns the messages of the prompt or the output, in vLLM's own format (requested with SHOW)."""
    assert response.model_extra is not None
    messages: list[dict[str, Any]] = response.model_extra[f"{side}_messages"]
    return messages


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def items(response: Response, kind: str) -> list[Any]:
    """Returns the output items of one type."""
    return [item for item in response.output if item.type == kind]


def shape(response: Response) -> list[tuple[str, ...]]:
    """Returns the content of a response, item by item, without ids and similar fields."""
    return [_item_shape(item) for item in response.output]


def _item_shape(item: Any) -> tuple[str, ...]:
    match item.type:
        case "reasoning":
            return ("reasoning", "".join(part.text for part in item.content or ()))
        case "message":
            return ("message", "".join(part.text for part in item.content))
        case "function_call":
            return ("function_call", item.name, item.arguments)
        case other:
            return (other,)


def expect_shape(script: ScriptWriter, response: Response, *expected: tuple[str, ...]) -> None:
    """Checks that a scripted response has exactly this content, ignoring outer whitespace."""
    if script.exact:
        assert [tuple(part.strip() for part in item) for item in shape(response)] == list(expected)
