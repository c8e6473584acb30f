"""Chat templates: they render a conversation as the prompt of a model, as transformers and vLLM do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from jinja2 import TemplateError
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node, Output
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

from vllm_harness._errors import UsageError
from vllm_harness.extras.templates.conversations import Message

T = TypeVar("T")
Change = Callable[[Message], Message]
TODAY = datetime(2026, 1, 1)
"""The date that templates see, so that two renderings of one conversation are the same."""


class ChatTemplateError(UsageError):
    """A template refuses a conversation, or fails on it."""


class ChatTemplate(Protocol):
    """Renders conversations as prompts."""

    def __call__(self, messages: Sequence[Message], tools: list[Message], *, generate: bool) -> str:
        """Renders a conversation; `generate` adds how the next turn begins. Raises ChatTemplateError."""

    def line_at(self, messages: Sequence[Message], tools: list[Message], position: int) -> int | None:
        """The line of the template that writes the character at a position of a conversation's text."""


class JinjaTemplate:
    """A template in Jinja, in the environment that transformers and vLLM give it."""

    def __init__(
        self, source: str, *, mutable: bool = False, given: Sequence[Change] = (), **variables: Any
    ) -> None:
        """Compiles a template.

        Args:
            mutable: whether the template may change lists, which that environment refuses.
            given: changes to each message before the template sees it.
            variables: the variables of the template other than the conversation.

        Raises:
            ChatTemplateError: the template is malformed.
        """
        try:
            self._template = _environment(mutable).from_string(source)
        except TemplateError as error:
            raise ChatTemplateError(f"line {getattr(error, 'lineno', '?')}: {error}") from error
        self._given, self._variables = given, variables

    def __call__(self, messages: Sequence[Message], tools: list[Message], *, generate: bool) -> str:
        return self._read("".join, self._pieces(messages, tools, generate))

    def line_at(self, messages: Sequence[Message], tools: list[Message], position: int) -> int | None:
        """The line that writes the character at a position; the last line that writes if there is none."""

        def found(pieces: Any) -> int | None:
            line, left = None, position
            for piece in pieces:
                line = self._template.get_corresponding_lineno(pieces.gi_frame.f_lineno)
                left -= len(piece)
                if left < 0:
                    break
            return line

        return self._read(found, self._pieces(messages, tools, False))

    def _pieces(self, messages: Sequence[Message], tools: list[Message], generate: bool) -> Any:
        """Generates the pieces of a prompt, each at the line that writes it."""
        for change in self._given:
            messages = [change(message) for message in messages]
        settings = {"messages": messages, "tools": tools or None, "add_generation_prompt": generate}
        return self._template.root_render_func(self._template.new_context({**self._variables, **settings}))

    @staticmethod
    def _read(read: Callable[[Any], T], pieces: Any) -> T:
        try:
            return read(pieces)
        except (TemplateError, TypeError, ValueError, AttributeError, KeyError) as error:
            raise ChatTemplateError(str(error)) from error


class _OnePieceEach(CodeGenerator):
    """Writes each expression as a piece of its own, since several in a row otherwise have one line."""

    def visit_Output(self, node: Output, frame: Frame) -> None:
        for child in node.nodes:
            piece = Output([child], lineno=child.lineno)
            self.newline(piece)
            super().visit_Output(piece, frame)


class _Generation(Extension):
    """The tag `generation`, which marks what a model wrote; it changes nothing in the text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment(mutable: bool) -> SandboxedEnvironment:
    def tojson(value: Any, ensure_ascii: bool = False, **settings: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **settings)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    kind = SandboxedEnvironment if mutable else ImmutableSandboxedEnvironment
    environment = kind(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.code_generator_class = _OnePieceEach
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=TODAY.strftime)
    return environment


def with_json_arguments(message: Message) -> Message:
    """A message whose calls have their arguments as JSON strings, as clients send them."""
    calls = [
        {**call, "function": {**call["function"], "arguments": _json(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else message


def with_thinking_part(message: Message) -> Message:
    """A message with its reasoning as a part of its content, as Mistral's templates expect it."""
    if "reasoning" not in message:
        return message
    thinking = {"type": "thinking", "thinking": message["reasoning"]}
    text = {"type": "text", "text": message["content"]}
    return {**message, "content": [thinking, text] if message["content"] else [thinking]}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
