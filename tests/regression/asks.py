"""Sends requests to a server over HTTP, and returns the codes of all that the validator finds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from requests import Response

from vllm_harness import ToolCall
from vllm_harness._defects.registry import known_deviations
from vllm_harness._exchange.endpoint import API_PATHS, Endpoint
from vllm_harness._protocol import (
    Exchange,
    Finding,
    SSEEvent,
    apply_known,
    compare_stream,
    parse_sse,
    validate_body,
    validate_conversation,
    validate_stream,
)
from vllm_harness._protocol.bodies import placed_as_in_stream
from vllm_harness._protocol.conversation.compare import matters
from vllm_harness._protocol.core.events import Api
from vllm_harness._scripted.book import Raw
from vllm_harness._server.remote import RemoteServer

Json = dict[str, Any]
Way = Literal["stream", "body", "both", "chain"]
"""`both` compares a stream with the body of its request; `chain` follows up and reads the result back."""

PARIS, ROME = (ToolCall("get_weather", {"city": city}) for city in ("Paris", "Rome"))
SCRIPTS: Mapping[str, Json] = {
    "text": {"say": "Hello there.", "reasoning": "I greet them."},
    "usage": {"say": "Hello there."},
    "call": {"say": "I look.", "calls": [PARIS]},
    "calls": {"say": "I look.", "calls": [PARIS, ROME]},
    "choices": {"choices": ["Hello there.", "Good day."]},
    "cut": {"say": "One, two, three, four, five, six.", "expect": "truncated"},
    "stopped": {"say": "One, two, three, four, five, six.", "expect": "truncated"},
    "code": {"say": Raw("<|channel|>analysis to=python code<|message|>print(7)<|call|>")},
    "mcp": {"say": Raw('<|channel|>commentary to=files.list<|message|>{"folder": "/"}<|call|>')},
}
"""Scripts of the model, by the name of the answer."""
MODEL = "qwen3"
MODELS: Mapping[str, str] = {"code": "gpt-oss", "mcp": "gpt-oss"}
"""The answers of another model: calls whose progress vLLM streams, whoever runs them."""

_FUNCTION = {"name": "get_weather", "description": "Weather of a city"}
_PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_TOOLS: Mapping[Api, Json] = {
    "responses": {"type": "function", **_FUNCTION, "parameters": _PARAMETERS},
    "chat": {"type": "function", "function": {**_FUNCTION, "parameters": _PARAMETERS}},
    "messages": {**_FUNCTION, "input_schema": _PARAMETERS},
}
_LIMITS: Mapping[Api, str] = {
    "responses": "max_output_tokens",
    "chat": "max_tokens",
    "messages": "max_tokens",
}
_HI = {"messages": [{"role": "user", "content": "Hi"}]}
_PROMPTS: Mapping[Api, Json] = {
    "responses": {"input": "Hi"},
    "chat": _HI,
    "messages": {**_HI, "max_tokens": 200},
}
# vLLM's bodies of Messages omit the field when it is null
_ONE_SIDED = ("stop_sequence",)


@dataclass(frozen=True)
class Ask:
    """A request such as `chat calls stream`: the API, the model's answer, and how it is sent."""

    api: Api
    answer: str
    way: Way

    @classmethod
    def named(cls, name: str) -> Ask:
        """Returns the request of a name. Raises ValueError if the name is wrong."""
        api, answer, way = name.split()
        if api not in API_PATHS or answer not in SCRIPTS or way not in get_args(Way):
            raise ValueError(f"{name!r} cannot be asked")
        return cls(api, answer, way)

    @property
    def model(self) -> str:
        """The model entry whose server gets the request."""
        return MODELS.get(self.answer, MODEL)

    def codes(self, server: RemoteServer, wanted: Collection[str]) -> list[str]:
        """Returns the codes of the validator's findings that are not known deviations.

        Args:
            server: it gets the request once, or once for each side of a comparison.
            wanted: codes that count even if they are only informative.
        """
        name = f"{self.api}-{self.answer}-{self.way}"
        book = server.book(name)
        book.script(**SCRIPTS[self.answer], times=None)
        findings = self._findings(book.endpoint, self._request(server.model))
        version = server.environment.vllm_version
        known = apply_known(findings, known_deviations(server.entry.name, version), version)
        counted = [each for each in known if each.counts or (each.code in wanted and not each.known)]
        return sorted({finding.code for finding in counted})

    def _request(self, model: str) -> Json:
        request = {"model": model, **_PROMPTS[self.api]}
        match self.answer:
            case "call" | "calls":
                request["tools"] = [_TOOLS[self.api]]
            case "choices":
                request["n"] = 2
            case "cut":
                request[_LIMITS[self.api]] = 4
            case "stopped":
                request["stop_sequences"] = ["three"]
            case "usage":
                request["stream_options"] = {"include_usage": True}
        return request

    def _findings(self, http: Endpoint, request: Json) -> Iterable[Finding]:
        path = API_PATHS[self.api]
        match self.way:
            case "stream":
                sent = {**request, "stream": True}
                return validate_stream(_stream(http, path, sent), api=self.api, request=sent)
            case "body":
                body = _body(http, path, request)
                return placed_as_in_stream(validate_body(body, api=self.api, request=request), body)
            case "both":
                events, body = _stream(http, path, {**request, "stream": True}), _body(http, path, request)
                return filter(matters, compare_stream(events, body, ignore=_ONE_SIDED))
            case "chain":
                return validate_conversation(_chain(http, path, request))


def _chain(http: Endpoint, path: str, request: Json) -> list[Exchange]:
    """Returns a response, one that follows it, and the stored copy of the second."""
    first = _body(http, path, request)
    following = {**request, "previous_response_id": first["id"]}
    second = _body(http, path, following)
    stored = f"{path}/{second['id']}"
    again = _accepted(http.get(stored)).json()
    return [
        Exchange(request, first),
        Exchange(following, second),
        Exchange(body=again, method="GET", path=stored),
    ]


def _stream(http: Endpoint, path: str, request: Json) -> list[SSEEvent]:
    return list(parse_sse([_accepted(http.post(path, json=request)).content]))


def _body(http: Endpoint, path: str, request: Json) -> Json:
    return dict(_accepted(http.post(path, json=request)).json())


def _accepted(answer: Response) -> Response:
    assert answer.status_code == 200, f"HTTP {answer.status_code}: {answer.text[:300]}"
    return answer
