"""Names what a server changed before a template saw it, from the prompt that the engine got."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vllm_harness.extras.templates.chat_template import (
    ChatTemplate,
    ChatTemplateError,
    with_json_arguments,
)
from vllm_harness.extras.templates.comparison import around_difference
from vllm_harness.extras.templates.conversations import Message

Given = tuple[list[Message], list[Message]]
_REASONING = ("reasoning", "reasoning_content")


def deviation(
    template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Message], prompt: str
) -> str | None:
    """Names how a prompt deviates from what the template makes of what the client meant; None if it does not.

    Args:
        messages, tools: what the client meant, with the keys that vLLM gives the messages.
        prompt: the prompt that the engine got, as text.

    Raises:
        ChatTemplateError: the template refuses what the client meant.
    """
    meant: Given = (list(messages), list(tools))
    expected = template(*meant, generate=True)
    if prompt == expected:
        return None
    for name, change in _CHANGES.items():
        for changed in change(*meant):
            try:
                if template(*changed, generate=True) == prompt:
                    return name
            except ChatTemplateError:
                continue
    made, got = around_difference(expected, prompt, before=20, after=60)
    return f"the prompt has {got!r}, the template makes {made!r}"


def _without_reasoning(messages: list[Message], tools: list[Message]) -> Iterator[Given]:
    yield [_without(message, *_REASONING) for message in messages], tools


def _without_some_reasoning(messages: list[Message], tools: list[Message]) -> Iterator[Given]:
    for at, message in enumerate(messages):
        if "reasoning" in message:
            yield [*messages[:at], _without(message, *_REASONING), *messages[at + 1 :]], tools


def _without_calls(messages: list[Message], tools: list[Message]) -> Iterator[Given]:
    yield [_without(message, "tool_calls") for message in messages], tools


def _sorted_schemas(messages: list[Message], tools: list[Message]) -> Iterator[Given]:
    yield messages, json.loads(json.dumps(tools, sort_keys=True))


def _no_tools(messages: list[Message], tools: list[Message]) -> Iterator[Given]:
    yield messages, []


def _no_system(messages: list[Message], tools: list[Message]) -> Iterator[Given]:
    yield [message for message in messages if message["role"] not in ("system", "developer")], tools


def _json_arguments(messages: list[Message], tools: list[Message]) -> Iterator[Given]:
    yield [with_json_arguments(message) for message in messages], tools


def _reversed_outputs(messages: list[Message], tools: list[Message]) -> Iterator[Given]:
    outputs = iter([message for message in messages if message["role"] == "tool"][::-1])
    yield [next(outputs) if message["role"] == "tool" else message for message in messages], tools


def _parts(messages: list[Message], tools: list[Message]) -> Iterator[Given]:
    def part(message: Message) -> Message:
        text = message["content"]
        return {**message, "content": [{"type": "text", "text": text}] if text else []}

    yield [message if message["role"] == "tool" else part(message) for message in messages], tools


def _without(message: Message, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key not in keys}


_CHANGES: dict[str, Callable[[list[Message], list[Message]], Iterator[Given]]] = {
    "the reasoning of the history is left out": _without_reasoning,
    "the reasoning of one turn is left out": _without_some_reasoning,
    "the calls of the history are left out": _without_calls,
    "the keys of the tools' schemas are sorted": _sorted_schemas,
    "the tools are left out": _no_tools,
    "the system message is left out": _no_system,
    "the arguments of calls are given as JSON strings": _json_arguments,
    "texts are given as lists of parts": _parts,
    "the outputs of the tools are in reverse order": _reversed_outputs,
}
"""The changes by name; each yields what the template would be given."""
