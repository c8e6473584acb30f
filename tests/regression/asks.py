"""Sends requests to a server over HTTP, and returns the codes of the validator's findings."""

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
Mode = Literal["stream", "body", "both", "chain"]
"""`both` compares a stream with a body; `chain` validates two responses and the stored second one."""

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
"""Maps the name of an answer to what the model generates."""
MODEL = "qwen3"
MODELS: Mapping[str, str] = {"code": "gpt-oss", "mcp": "gpt-oss"}
"""Maps the name of an answer to its model, if not `MODEL`: calls whose progress vLLM streams."""

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
# fields that vLLM omits from Messages bodies if they are null
_ONE_SIDED = ("stop_sequence",)


@dataclass(frozen=True)
class Ask:
    """A request that is named, for example, `chat calls stream`, after API, answer and mode."""

    api: Api
    answer: str
    mode: Mode

    @classmethod
    def named(cls, name: str) -> Ask:
        """Parses the name of a request. Raises ValueError if it is invalid."""
        api, answer, mode = name.split()
        if api not in API_PATHS or answer not in SCRIPTS or mode not in get_args(Mode):
            raise ValueError(f"{name!r} is not a request")
        return cls(api, answer, mode)

    @property
    def model(self) -> str:
        """The name of the model entry."""
        return MODELS.get(self.answer, MODEL)

    def codes(self, server: RemoteServer, wanted: Collection[str]) -> list[str]:
        """The codes of the validator's findings in a server's answers, without known deviations.

        Args:
            server: the server that gets the request; in modes `both` and `chain`, several requests.
            wanted: codes whose findings count even if they are only information.
        """
        name = f"{self.api}-{self.answer}-{self.mode}"
        book = server.book(name)
        book.script(**SCRIPTS[self.answer], times=None)
        findings = self._findings(book.endpoint, self._request(server.model))
        version = server.environment.vllm_version
        known = apply_known(findings, known_deviations(server.entry.name, version), version)
        counted = (
            finding for finding in known if finding.counts or (finding.code in wanted and not finding.known)
        )
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
        match self.mode:
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
    """Exchanges with a response, a second response that continues it, and the stored second response."""
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
