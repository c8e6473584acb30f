"""Builds the request for a turn in each API: messages, tools, tool choice, limits."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import model_validator

from vllm_harness._exchange.answer import Answer
from vllm_harness._files.strict import StrictModel
from vllm_harness._protocol.core.events import Api, Json

TOOL_CHOICES = ("auto", "required", "none")
DATA_URL = re.compile(r"data:(?P<type>[\w/+.-]+);base64,(?P<data>.*)", re.S)
WITHOUT_LIMIT = 4096
"""`max_tokens` for Messages, which requires it, if the context length is unknown (else half of that)."""


class ContentPart(StrictModel):
    """A part of the user's message: text or an image.

    Attributes:
        text: the text of the part; None for an image.
        image: an HTTP(S) URL, a `data:` URL, or the path of a file, relative to the scenario file.
        hosted: whether the harness serves the image on this machine during the scenario and sends its URL.
    """

    text: str | None = None
    image: str | None = None
    hosted: bool = False

    @model_validator(mode="after")
    def _is_one_thing(self) -> ContentPart:
        if (self.text is None) == (self.image is None):
            raise ValueError("give exactly one of: text, image")
        if self.hosted and (self.image is None or self.image.startswith(("http://", "https://"))):
            raise ValueError("only an image without a URL can be hosted")
        return self


@dataclass(frozen=True)
class Result:
    """The result of a tool call.

    Attributes:
        call_id: the id of the call.
        text: the tool's output, or its error message.
        failed: whether the tool failed.
        images: the URLs of images in the output.
    """

    call_id: str
    text: str
    failed: bool = False
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class TurnInput:
    """The input of a turn: tool results, the ids of approved calls, and the user's message, sent last."""

    results: tuple[Result, ...]
    user: tuple[ContentPart, ...]
    approved: tuple[str, ...] = ()


@dataclass(frozen=True)
class PastTurn:
    """A past turn: the input sent and the model's answer."""

    sent: TurnInput
    answer: Answer


@dataclass(frozen=True)
class TurnRequest:
    """A turn for which a request is built.

    Attributes:
        model: the name of the model on the server; empty to omit it.
        sent: the input of the turn.
        line: the turns before this one, in order from the first.
        instructions: the system prompt.
        functions: the offered functions, each with `name`, `description`, `parameters` and `strict`.
        of_server: the tools that the server runs, as a Responses API request lists them.
        tool_choice: a mode, or the name of a function; None to omit it.
        max_tokens: the token limit of the answer; None for no limit.
        context: the context length of the model, if known.
        background: whether the answer is generated in the background.
        stored: whether the server stores the answers, so that only new input is sent (Responses).
        stream: whether the answer is streamed.
        stop: strings that end the answer (Chat Completions and Messages).
        more: further request fields, which override the generated fields.
    """

    model: str
    sent: TurnInput
    line: tuple[PastTurn, ...] = ()
    instructions: str | None = None
    functions: Sequence[Json] = ()
    of_server: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | None = None
    max_tokens: int | None = None
    context: int | None = None
    background: bool = False
    stored: bool = False
    stream: bool = False
    stop: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


def request_of(api: Api, ask: TurnRequest) -> Json:
    """Builds the request body for a turn."""
    return {**given(**_BUILDERS[api].request(ask)), **ask.more}


class _Builder(ABC):
    """Builds an API's requests; the answers of past turns are sent back unchanged."""

    def request(self, ask: TurnRequest) -> Json:
        tools = [*map(self.tool, ask.functions), *ask.of_server]
        choice = ask.tool_choice
        return {
            "model": ask.model or None,
            "tools": tools or None,
            "tool_choice": self.mode(choice) if choice in (None, *TOOL_CHOICES) else self.named(choice),
            "temperature": 0,
            "stream": ask.stream or None,
            **self.own(ask),
        }

    def history(self, ask: TurnRequest) -> list[Json]:
        """The past turns, then the input of this turn."""
        before = (entry for past in ask.line for entry in (*self.turn(past.sent), *self.said(past.answer)))
        return [*before, *self.turn(ask.sent)]

    def said(self, answer: Answer) -> Sequence[Json]:
        return answer.said

    def mode(self, choice: str | None) -> Any:
        return choice

    def content(self, parts: Sequence[ContentPart]) -> str | list[Json]:
        """The content of a user's message; a single text part is sent as a string."""
        text = parts[0].text if len(parts) == 1 else None
        return list(map(self.part, parts)) if text is None else text

    def output(self, result: Result) -> str | list[Json]:
        """A tool's output. OpenAI's Chat Completions API accepts only text here; vLLM accepts images too."""
        shown = [ContentPart(image=image) for image in result.images]
        text = [ContentPart(text=result.text)] if result.text else []
        return [self.part(part) for part in (*text, *shown)] if shown else result.text

    @abstractmethod
    def own(self, ask: TurnRequest) -> Json:
        """The fields that differ between the APIs."""

    @abstractmethod
    def turn(self, sent: TurnInput) -> Iterator[Json]:
        """The input of a turn as messages or items."""

    @abstractmethod
    def part(self, part: ContentPart) -> Json: ...

    @abstractmethod
    def tool(self, function: Json) -> Json: ...

    @abstractmethod
    def named(self, function: str) -> Json:
        """The tool choice that forces one function."""


class _Chat(_Builder):
    def own(self, ask: TurnRequest) -> Json:
        system = [{"role": "system", "content": ask.instructions}] if ask.instructions is not None else []
        options = {"include_usage": True} if ask.stream else None
        return {
            "messages": [*system, *self.history(ask)],
            "max_completion_tokens": ask.max_tokens,
            "stream_options": options,
            "stop": list(ask.stop) or None,
        }

    def turn(self, sent: TurnInput) -> Iterator[Json]:
        for result in sent.results:
            yield {"role": "tool", "tool_call_id": result.call_id, "content": self.output(result)}
        if sent.user:
            yield {"role": "user", "content": self.content(sent.user)}

    def part(self, part: ContentPart) -> Json:
        if part.image is not None:
            return {"type": "image_url", "image_url": {"url": part.image}}
        return {"type": "text", "text": part.text}

    def tool(self, function: Json) -> Json:
        return {"type": "function", "function": function}

    def named(self, function: str) -> Json:
        return {"type": "function", "function": {"name": function}}


class _Responses(_Builder):
    def own(self, ask: TurnRequest) -> Json:
        continued = ask.line[-1].answer.id if ask.stored and ask.line else None
        return {
            "instructions": ask.instructions,
            "input": list(self.turn(ask.sent)) if ask.stored else self.history(ask),
            "previous_response_id": continued,
            "max_output_tokens": ask.max_tokens,
            "background": ask.background or None,
        }

    def turn(self, sent: TurnInput) -> Iterator[Json]:
        for result in sent.results:
            output = self.output(result)
            yield {"type": "function_call_output", "call_id": result.call_id, "output": output}
        for request in sent.approved:
            yield {"type": "mcp_approval_response", "approval_request_id": request, "approve": True}
        if sent.user:
            yield {"role": "user", "content": self.content(sent.user)}

    def part(self, part: ContentPart) -> Json:
        if part.image is not None:
            return {"type": "input_image", "image_url": part.image, "detail": "auto"}
        return {"type": "input_text", "text": part.text}

    def tool(self, function: Json) -> Json:
        return {"type": "function", **function}

    def named(self, function: str) -> Json:
        return {"type": "function", "name": function}


class _Messages(_Builder):
    def own(self, ask: TurnRequest) -> Json:
        limit = ask.max_tokens or (ask.context // 2 if ask.context else WITHOUT_LIMIT)
        return {
            "max_tokens": limit,
            "system": ask.instructions,
            "messages": self.history(ask),
            "stop_sequences": list(ask.stop) or None,
        }

    def said(self, answer: Answer) -> Sequence[Json]:
        return ({"role": "assistant", "content": list(answer.said)},)

    def mode(self, choice: str | None) -> Json | None:
        return {"type": {"required": "any"}.get(choice, choice)} if choice else None

    def turn(self, sent: TurnInput) -> Iterator[Json]:
        """One message, in which tool results come first, as the API requires."""
        results = [
            {"type": "tool_result", "tool_use_id": result.call_id, "content": self.output(result)}
            | ({"is_error": True} if result.failed else {})
            for result in sent.results
        ]
        if results:
            yield {"role": "user", "content": [*results, *map(self.part, sent.user)]}
        elif sent.user:
            yield {"role": "user", "content": self.content(sent.user)}

    def part(self, part: ContentPart) -> Json:
        if part.image is None:
            return {"type": "text", "text": part.text}
        inline = DATA_URL.fullmatch(part.image)
        if inline is None:
            return {"type": "image", "source": {"type": "url", "url": part.image}}
        source = {"type": "base64", "media_type": inline["type"], "data": inline["data"]}
        return {"type": "image", "source": source}

    def tool(self, function: Json) -> Json:
        return {"input_schema" if key == "parameters" else key: value for key, value in function.items()}

    def named(self, function: str) -> Json:
        return {"type": "tool", "name": function}


_BUILDERS: Mapping[Api, _Builder] = {"chat": _Chat(), "responses": _Responses(), "messages": _Messages()}


def given(**fields: Any) -> Json:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
