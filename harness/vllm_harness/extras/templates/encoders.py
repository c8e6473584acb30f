"""Encoders that stand for chat templates: the Python code that a vendor publishes in place of one."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_harness.extras.templates.chat_template import ChatTemplateError, with_json_arguments
from vllm_harness.extras.templates.conversations import Message


@dataclass(frozen=True)
class Encoder:
    """A chat template that is a function of the messages, the tools, and whether the next turn begins."""

    render: Callable[[Sequence[Message], list[Message], bool], str]

    def __call__(self, messages: Sequence[Message], tools: list[Message], *, generate: bool) -> str:
        try:
            return self.render(messages, tools, generate)
        except Exception as error:  # the encoders raise exceptions of their own
            raise ChatTemplateError(str(error)) from error

    def line_at(self, messages: Sequence[Message], tools: list[Message], position: int) -> int | None:
        return None


def deepseek(path: Path, **variables: Any) -> Encoder:
    """An encoder of DeepSeek: a module with `encode_messages`, which begins a turn after a user's message."""
    spec = importlib.util.spec_from_file_location(f"vllm_harness_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def render(messages: Sequence[Message], tools: list[Message], generate: bool) -> str:
        system = [{"role": "system", "content": "", "tools": tools}] if tools else []
        return str(module.encode_messages([*system, *map(with_json_arguments, messages)], **variables))

    return Encoder(render)


def harmony(ranks: Path) -> Encoder:
    """OpenAI's package openai-harmony.

    Args:
        ranks: the file o200k_base.tiktoken, which the package otherwise downloads.
    """
    import openai_harmony as package

    before = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(ranks.parent)
    try:
        encoding = package.load_harmony_encoding(package.HarmonyEncodingName.HARMONY_GPT_OSS)
    finally:
        os.environ.pop("TIKTOKEN_ENCODINGS_BASE")
        if before is not None:
            os.environ["TIKTOKEN_ENCODINGS_BASE"] = before
    settings = package.RenderConversationConfig(auto_drop_analysis=False)

    def render(messages: Sequence[Message], tools: list[Message], generate: bool) -> str:
        given = [each for message in messages for each in _harmony_messages(package, message)]
        conversation = package.Conversation.from_messages(given)
        if generate:
            tokens = encoding.render_conversation_for_completion(conversation, package.Role.ASSISTANT)
        else:
            tokens = encoding.render_conversation_for_training(conversation, settings)
        return str(encoding.decode_utf8(tokens))

    return Encoder(render)


def _harmony_messages(package: Any, message: Message) -> Iterator[Any]:
    """A message of a chat as Harmony's: reasoning, text and each call are messages of their own."""
    role = package.Role(message["role"])

    def written(text: str) -> Any:
        return package.Message.from_role_and_content(role, text)

    if role is package.Role.TOOL:
        author = package.Author.new(role, f"functions.{message['name']}")
        answer = package.Message.from_author_and_content(author, message["content"])
        yield answer.with_recipient("assistant").with_channel("commentary")
        return
    if "reasoning" in message:
        yield written(message["reasoning"]).with_channel("analysis")
    calls = message.get("tool_calls", ())
    if message["content"] and role is package.Role.ASSISTANT:
        yield written(message["content"]).with_channel("commentary" if calls else "final")
    elif message["content"]:
        yield written(message["content"])
    for call in calls:
        arguments = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        called = written(arguments).with_channel("commentary").with_content_type("<|constrain|>json")
        yield called.with_recipient(f"functions.{call['function']['name']}")
