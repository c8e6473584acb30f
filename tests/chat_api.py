"""Helpers for tests of Chat Completions: requests whose answers are validated, and readers of answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from requests import Response

from tests.apis import endpoint_of
from tests.body_and_stream import body_and_stream
from tests.error_objects import check_param
from tests.lost_calls import checks_for
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

ASK: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
CITY: dict[str, Any] = {"type": "string", "enum": ["Paris", "Rome"]}


def function(
    name: str, properties: dict[str, Any] | None = None, *, strict: bool | None = None, **schema: Any
) -> dict[str, Any]:
    """Returns a tool whose properties are all required; without properties, it takes no arguments."""
    properties = properties or {}
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **schema,
    }
    declared: dict[str, Any] = {"name": name, "description": f"Does {name}", "parameters": parameters}
    return {"type": "function", "function": declared if strict is None else {**declared, "strict": strict}}


def named(name: str) -> dict[str, Any]:
    """Returns the tool_choice that forces one function."""
    return {"type": "function", "function": {"name": name}}


WEATHER = function("get_weather", {"city": CITY}, strict=True)
CUTS = (1, 1, 1, 2, 3)
"""Tokens per step of a stream, for tests that depend on how the stream is split into chunks."""
FREE = function("get_weather", {"city": {"type": "string"}})
FORECAST = function("get_weather_forecast", {"city": {"type": "string"}, "days": {"type": "integer"}})
NOW = function("now")
ANYTHING = function("store", additionalProperties=True)
PARIS = ToolCall("get_weather", {"city": "Paris"})
ROME = ToolCall("get_weather", {"city": "Rome"})
# a call to get_weather and its output
HISTORY: list[Any] = [
    *ASK,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_paris_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_paris_1", "content": "rain, 98 percent humid"},
]


@dataclass(frozen=True)
class ChoiceOutput:
    """The content of one choice, from a body or from a stream.

    Attributes:
        calls: the name and arguments of each tool call; the arguments are text.
        stop: vLLM's stop_reason: the stop string or token; None if the model ended its turn.
    """

    content: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    finish: str | None
    stop: int | str | None = None

    @property
    def arguments(self) -> list[Any]:
        """The parsed arguments of each call."""
        return [json.loads(arguments) for _, arguments in self.calls]

    @property
    def names(self) -> list[str]:
        """The names of the called functions, in order."""
        return [name for name, _ in self.calls]

    @property
    def meant(self) -> ChoiceOutput:
        """The same content, with the arguments of each call in uniform JSON notation."""
        return replace(self, calls=tuple((name, _rewritten(arguments)) for name, arguments in self.calls))


def _rewritten(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments))
    except ValueError:
        return arguments


def output_of(completion: ChatCompletion, index: int = 0) -> ChoiceOutput:
    """Returns the content of a choice in a body."""
    choice = completion.choices[index]
    calls = tuple(
        (call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or []
        if call.type == "function"
    )
    reasoning = getattr(choice.message, "reasoning", None) or ""
    stop = getattr(choice, "stop_reason", None)
    return ChoiceOutput(choice.message.content or "", reasoning, calls, choice.finish_reason, stop)


@dataclass
class _Streamed:
    content: str = ""
    reasoning: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish: str | None = None
    stop: int | str | None = None

    def add(self, chunk: ChatCompletionChunk, index: int) -> None:
        for choice in chunk.choices:
            if choice.index != index:
                continue
            self.content += choice.delta.content or ""
            self.reasoning += getattr(choice.delta, "reasoning", None) or ""
            for call in choice.delta.tool_calls or []:
                pieces = self.calls.setdefault(call.index, ["", ""])
                if call.function is not None:
                    pieces[0] += call.function.name or ""
                    pieces[1] += call.function.arguments or ""
            self.finish = choice.finish_reason or self.finish
            self.stop = getattr(choice, "stop_reason", None) or self.stop


def streamed(chunks: Iterable[ChatCompletionChunk], index: int = 0) -> ChoiceOutput:
    """Returns the content of a choice in a stream."""
    whole = _Streamed()
    for chunk in chunks:
        whole.add(chunk, index)
    calls = tuple((name, arguments) for _, (name, arguments) in sorted(whole.calls.items()))
    return ChoiceOutput(whole.content, whole.reasoning, calls, whole.finish, whole.stop)


@dataclass(frozen=True)
class Answers:
    """The answers to one request, as a body and as a stream."""

    body: ChatCompletion
    chunks: list[ChatCompletionChunk]

    @property
    def output(self) -> ChoiceOutput:
        """The content of the body."""
        return output_of(self.body)

    @property
    def streamed(self) -> ChoiceOutput:
        """The content of the stream."""
        return streamed(self.chunks)


@dataclass(frozen=True)
class Chat:
    """Sends chat requests to a server, validates every answer, and compares streams with bodies.

    Attributes:
        server: the server under test.
        client: an SDK client whose requests are answered by the test's scripts.
        check: returns the plugin's check with a name (`check_body`, `check_stream`, `check_same`).
        script: scripts the model's answers for the test.
    """

    server: VllmServer
    client: OpenAI
    check: Callable[[str], Callable[..., None]]
    script: ScriptWriter

    @property
    def rust(self) -> bool:
        """Whether vLLM's Rust front end answers."""
        return isinstance(self.server, RemoteServer) and self.server.launch.frontend == "rust"

    def body(self, messages: Sequence[Any] = ASK, **request: Any) -> ChatCompletion:
        """Requests a body; fields that OpenAI's SDK does not know are added to the request unchanged."""
        answer = self._body(messages, request)
        self.check("check_body")(answer, request=request)
        return answer

    def stream(self, messages: Sequence[Any] = ASK, **request: Any) -> list[ChatCompletionChunk]:
        """Requests a stream and returns its chunks; the request includes usage by default."""
        request = _for_stream(request)
        chunks = self._chunks(messages, request)
        self.check("check_stream")(chunks, request=request)
        return chunks

    def both(self, messages: Sequence[Any] = ASK, *, but: Sequence[str] = (), **request: Any) -> Answers:
        """Requests a body and a stream, which must match; the two requests use a script twice.

        Args:
            messages: the messages of the request.
            but: fields that are not compared, because another test compares them.
            request: further fields of the request.
        """
        return self._checked(self._answered(messages, request), request, but)

    def both_of_each(self, requests: Sequence[dict[str, Any]]) -> list[Answers]:
        """Calls `both` for each request, concurrently if the answers are scripted."""
        with ThreadPoolExecutor(len(requests) if self.script.exact else 1) as pool:
            answered = list(pool.map(lambda request: self._answered(ASK, request), requests))
        return [self._checked(*each, ()) for each in zip(answered, requests, strict=True)]

    def _answered(self, messages: Sequence[Any], request: dict[str, Any]) -> Answers:
        both = body_and_stream(
            lambda: self._body(messages, request),
            lambda: self._chunks(messages, _for_stream(request)),
            exact=self.script.exact,
        )
        return Answers(*both)

    def _checked(self, answers: Answers, request: dict[str, Any], but: Sequence[str]) -> Answers:
        """Validates both answers and compares them."""
        self.check("check_body")(answers.body, request=request)
        self.check("check_stream")(answers.chunks, request=_for_stream(request))
        body, stream = answers.output, answers.streamed
        same = stream == body if self.script.exact else stream.meant == body.meant
        expect_content(same, f"body: {body}, stream: {stream}")
        self.check("check_same")(answers.chunks, answers.body, ignore=(*COMPARED, *but))
        return answers

    def refused(self, request: Any, pattern: str, *, status: int = 400, **headers: str) -> dict[str, Any]:
        """Checks that the server refuses a request and still serves afterwards; returns the error.

        Args:
            request: the fields besides model and messages, or the whole body as bytes.
            pattern: a regular expression that the message must match.
            status: the expected HTTP status.
            headers: the headers of the request.
        """
        whole = (
            request
            if isinstance(request, bytes)
            else {"model": self.server.model, "messages": ASK, "max_tokens": 16, **request}
        )
        answer = self.post("/v1/chat/completions", whole, **headers)
        assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
        self.check("check_body")(answer.json())
        assert isinstance(answer.json().get("error"), dict), answer.text
        error: dict[str, Any] = answer.json()["error"]
        assert "no script matches" not in error["message"], "vLLM would have served it"
        assert re.search(pattern, error["message"], re.IGNORECASE), error["message"]
        assert error["code"] == status
        check_param(error)
        self.script("Served.")
        self.body(max_tokens=20 if self.script.exact else 1)
        return error

    def post(self, path: str, body: Any, **headers: str) -> Response:
        """Posts JSON, or any bytes, without the SDK."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        return endpoint_of(self.client).post(path, data=data, headers=sent)

    def tokens(self, text: str) -> list[int]:
        """Returns the token ids of a text according to the server's tokenizer."""
        request = {"model": self.server.model, "prompt": text, "add_special_tokens": False}
        return [int(token) for token in self._behind("/tokenize", request)["tokens"]]

    def text(self, tokens: Sequence[int]) -> str:
        """Returns the text for token ids, including special tokens."""
        request = {"model": self.server.model, "tokens": list(tokens)}
        return str(self._behind("/detokenize", request)["prompt"])

    def prompt(self, messages: Sequence[Any], **request: Any) -> str:
        """Returns the prompt that vLLM makes from a request, with special tokens; uses a script once."""
        return self.text(self.body(messages, return_token_ids=True, **request).prompt_token_ids)  # type: ignore[attr-defined]

    def _behind(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        """Sends the request directly to the server, even if the tests run through a gateway."""
        books = None if isinstance(self.server, RemoteServer) else self.server.books
        return dict((books or self.server.endpoint).post(path, json=request).json())

    def _body(self, messages: Sequence[Any], request: dict[str, Any]) -> ChatCompletion:
        answer: ChatCompletion = self.client.chat.completions.create(**self._request(messages, request))
        return answer

    def _chunks(self, messages: Sequence[Any], request: dict[str, Any]) -> list[ChatCompletionChunk]:
        return list(self.client.chat.completions.create(**self._request(messages, request)))

    def _request(self, messages: Sequence[Any], request: dict[str, Any]) -> dict[str, Any]:
        extra = {key: value for key, value in request.items() if key not in _OPENAI}
        own = {key: value for key, value in request.items() if key in _OPENAI}
        return {
            "model": self.server.model,
            "messages": list(messages),
            "temperature": 0,
            **own,
            "extra_body": extra,
        }


def _for_stream(request: dict[str, Any]) -> dict[str, Any]:
    return {"stream_options": {"include_usage": True}, **request, "stream": True}


# ChoiceOutput compares the content and treats empty as absent; vLLM's ids and metrics are not content
COMPARED = ("content", "stop_reason", "token_ids", "prompt_token_ids", "prompt_text", "metrics")
_OPENAI = frozenset(
    {
        *("frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "n"),
        *("parallel_tool_calls", "presence_penalty", "reasoning_effort", "response_format", "seed", "stop"),
        *(
            "stream",
            "stream_options",
            "temperature",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "model",
        ),
        *("extra_headers",),
    }
)


@pytest.fixture
def chat(
    vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter, request: pytest.FixtureRequest
) -> Chat:
    """The server's Chat Completions API."""
    check = checks_for(request, vllm_server)
    return Chat(vllm_server, openai_client, check, script)
