"""A turn of a conversation as a request of each API: messages, tools, tool choice, limits."""

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
"""Messages wants a limit: this one where the length of the context is not known, else half of it."""


class ContentPart(StrictModel):
    """A part of what the user sends: a text, or an image.

    Attributes:
        text: a text.
        image: a URL of http or https, a `data:` URL, or a file's path, relative to the scenario's file.
        hosted: the harness serves the image on this machine while the scenario runs, and sends its address.
    """

    text: str | None = None
    image: str | None = None
    hosted: bool = False

    @model_validator(mode="after")
    def _is_one_thing(self) -> ContentPart:
        if (self.text is None) == (self.image is None):
            raise ValueError("give exactly one of: text, image")
        if self.hosted and (self.image is None or self.image.startswith(("http://", "https://"))):
            raise ValueError("only an image that has no address is hosted")
        return self


@dataclass(frozen=True)
class Result:
    """What a tool gave for a call.

    Attributes:
        call_id: of the call.
        text: its output, or what went wrong.
        failed: whether it failed.
        images: URLs of what it shows.
    """

    call_id: str
    text: str
    failed: bool = False
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sent:
    """What a turn sends: outputs of tools, agreement to calls of the server, then what the user says."""

    results: tuple[Result, ...]
    user: tuple[ContentPart, ...]
    approved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Said:
    """A turn of the past: what it sent, and what came back."""

    sent: Sent
    answer: Answer


@dataclass(frozen=True)
class Ask:
    """A turn to be asked.

    Attributes:
        model: its name on the server; empty: left out.
        sent: what it sends.
        line: the turns that it continues, from the first.
        instructions: the system prompt.
        functions: what the model is offered, each with `name`, `description`, `parameters` and `strict`.
        of_server: what the server calls by itself, as tools of a request of the Responses API.
        tool_choice: a mode, or the name of a function; None: left out.
        max_tokens: limit of the answer; None: only the model's length.
        context: length of the model's context, where it is known.
        background: whether the answer is made in the background.
        stored: whether the server keeps the answer, so that only what is new is sent (Responses).
        stream: whether the answer is streamed.
        stop: strings that end the answer (Chat Completions and Messages).
        more: further fields.
    """

    model: str
    sent: Sent
    line: tuple[Said, ...] = ()
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


def request_of(api: Api, ask: Ask) -> Json:
    """The body of a turn's request."""
    return {**given(**_BUILDERS[api].request(ask)), **ask.more}


class _Builder(ABC):
    """How an API writes a request; the answers of the past go back as they came."""

    def request(self, ask: Ask) -> Json:
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

    def history(self, ask: Ask) -> list[Json]:
        """What was said before, and what is sent now."""
        before = (each for said in ask.line for each in (*self.turn(said.sent), *self.said(said.answer)))
        return [*before, *self.turn(ask.sent)]

    def said(self, answer: Answer) -> Sequence[Json]:
        return answer.said

    def mode(self, choice: str | None) -> Any:
        return choice

    def content(self, parts: Sequence[ContentPart]) -> str | list[Json]:
        """What a user says: one text alone as a text."""
        text = parts[0].text if len(parts) == 1 else None
        return list(map(self.part, parts)) if text is None else text

    def output(self, result: Result) -> str | list[Json]:
        """What a tool gave. Chat of OpenAI's takes only texts here; vLLM takes what it takes of a user."""
        shown = [ContentPart(image=image) for image in result.images]
        text = [ContentPart(text=result.text)] if result.text else []
        return [self.part(part) for part in (*text, *shown)] if shown else result.text

    @abstractmethod
    def own(self, ask: Ask) -> Json:
        """The fields that no other API has."""

    @abstractmethod
    def turn(self, sent: Sent) -> Iterator[Json]:
        """What a turn sends, as messages or items."""

    @abstractmethod
    def part(self, part: ContentPart) -> Json: ...

    @abstractmethod
    def tool(self, function: Json) -> Json: ...

    @abstractmethod
    def named(self, function: str) -> Json:
        """The choice of a function."""


class _Chat(_Builder):
    def own(self, ask: Ask) -> Json:
        system = [{"role": "system", "content": ask.instructions}] if ask.instructions is not None else []
        options = {"include_usage": True} if ask.stream else None
        return {
            "messages": [*system, *self.history(ask)],
            "max_completion_tokens": ask.max_tokens,
            "stream_options": options,
            "stop": list(ask.stop) or None,
        }

    def turn(self, sent: Sent) -> Iterator[Json]:
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
    def own(self, ask: Ask) -> Json:
        continued = ask.line[-1].answer.id if ask.stored and ask.line else None
        return {
            "instructions": ask.instructions,
            "input": list(self.turn(ask.sent)) if ask.stored else self.history(ask),
            "previous_response_id": continued,
            "max_output_tokens": ask.max_tokens,
            "background": ask.background or None,
        }

    def turn(self, sent: Sent) -> Iterator[Json]:
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
    def own(self, ask: Ask) -> Json:
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

    def turn(self, sent: Sent) -> Iterator[Json]:
        """One message: results come first in it, as the API wants them."""
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
