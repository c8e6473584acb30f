"""Renders Harmony conversations with openai-harmony, as the prompts that gpt-oss must receive."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncodingName,
    Message,
    ReasoningEffort,
    RenderConversationConfig,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
    load_harmony_encoding,
)

from tests import prompts
from vllm_harness._environments import assets

RECIPIENT = (" to=assistant<|channel|>commentary", "<|channel|>commentary to=assistant")
DATE = "2026-01-01"  # env/runtime.yaml pins this date for every server


@pytest.fixture(scope="session")
def harmony() -> Iterator[Any]:
    """The encoding of openai-harmony for gpt-oss."""
    with pytest.MonkeyPatch.context() as patch:
        if "TIKTOKEN_ENCODINGS_BASE" not in os.environ:
            patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(assets.fetch("harmony-encodings")))
        yield load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


def system(effort: ReasoningEffort = ReasoningEffort.MEDIUM, instructions: str | None = None) -> Message:
    """The system message that starts every prompt; instructions, if any, follow the model's identity."""
    content = SystemContent.new().with_conversation_start_date(DATE).with_reasoning_effort(effort)
    if instructions is not None:
        content = content.with_model_identity(f"{content.model_identity}\n{instructions}")
    return Message.from_role_and_content(Role.SYSTEM, content)


def developer(instructions: str | None = None, functions: Sequence[Mapping[str, Any]] = ()) -> Message:
    """The developer message, with instructions and tools."""
    content = DeveloperContent.new()
    if instructions is not None:
        content = content.with_instructions(instructions)
    if functions:
        described = [
            ToolDescription.new(**{key: each[key] for key in ("name", "description", "parameters")})
            for each in functions
        ]
        content = content.with_function_tools(described)
    return Message.from_role_and_content(Role.DEVELOPER, content)


def user(text: str) -> Message:
    """A user message."""
    return Message.from_role_and_content(Role.USER, text)


def assistant(text: str, channel: str = "final") -> Message:
    """An assistant message on a channel."""
    return Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)


def called(arguments: str, name: str = "get_weather") -> Message:
    """A tool call."""
    return assistant(arguments, "commentary").with_recipient(f"functions.{name}").with_content_type("json")


def returned(output: str, name: str = "get_weather") -> Message:
    """A tool's output."""
    author = Author.new(Role.TOOL, f"functions.{name}")
    return (
        Message.from_author_and_content(author, output).with_channel("commentary").with_recipient("assistant")
    )


def prompt_tokens(harmony: Any, *messages: Message) -> int:
    """The number of tokens in the prompt that these messages make; no message is dropped."""
    return len(prompt_ids(harmony, *messages))


def prompt_ids(harmony: Any, *messages: Message) -> list[int]:
    """The token ids of the prompt that these messages make; no message is dropped."""
    conversation = Conversation.from_messages(list(messages))
    config = RenderConversationConfig(auto_drop_analysis=False)
    return list(harmony.render_conversation_for_completion(conversation, Role.ASSISTANT, config))


def prompts_of(
    harmony: Any, conversation: prompts.Conversation, *, switched: bool = False
) -> tuple[list[int], ...]:
    """The correct prompts for a conversation, with the instructions, tools and effort of its last request.

    Args:
        harmony: the encoding.
        conversation: a conversation in `cases/prompts.yaml`.
        switched: whether an environment variable makes vLLM put the instructions into the system message.

    The header of a tool output may have the recipient in its role section or in its channel section, and the
    output's texts may be joined with a line break, so there are several correct prompts.

    Source: https://cookbook.openai.com/articles/openai-harmony, "Handling reasoning output in subsequent
    sampling": reasoning is left out once a final answer follows it.
    """
    last, turns = conversation.steps[-1], conversation.turns
    instructions = last.instructions
    if instructions is None and turns[0][0] in ("system", "developer"):
        (_, instructions), turns = turns[0], turns[1:]
    efforts = {"none": ReasoningEffort.LOW, "low": ReasoningEffort.LOW, "high": ReasoningEffort.HIGH}
    effort = efforts.get(last.effort or "", ReasoningEffort.MEDIUM)
    head = [system(effort, instructions if switched else None)]
    instructions = None if switched else instructions
    if instructions or last.functions:
        head.append(developer(instructions, last.functions))
    answered = max((at for at, turn in enumerate(turns) if turn[0] == "assistant"), default=-1)
    kept = [turn for at, turn in enumerate(turns) if turn[0] != "thoughts" or at > answered]
    names = {turn[1]: prompts.called(turn) for turn in kept if turn[0] == "call"}
    in_role, in_channel = (harmony.encode(each, allowed_special="all") for each in RECIPIENT)
    found = []
    for between in ("", "\n"):
        ids = prompt_ids(harmony, *head, *(_message(turn, names, between) for turn in kept))
        found += [ids, _replaced(ids, in_role, in_channel)]
    return tuple(found)


def _replaced(ids: list[int], old: list[int], new: list[int]) -> list[int]:
    """The token ids with each `old` sequence replaced by `new`."""
    at = next((n for n in range(len(ids)) if ids[n : n + len(old)] == old), None)
    return ids if at is None else [*ids[:at], *new, *_replaced(ids[at + len(old) :], old, new)]


def _message(turn: prompts.Turn, names: Mapping[str, str], between: str) -> Message:
    """The message of a turn.

    Args:
        turn: the turn.
        names: the name of the called tool, by call number.
        between: the separator between the texts of an output, which no specification defines.
    """
    kind, *texts = turn
    match kind:
        case "user":
            return Message.from_role_and_contents(Role.USER, [TextContent(text=text) for text in texts])
        case "assistant":
            return assistant(texts[0])
        case "thoughts":
            return assistant(texts[0], "analysis")
        case "call":
            return called(prompts.arguments(texts[1]), names[texts[0]])
        case "output":
            return returned(between.join(texts[1:]), names[texts[0]])
        case _:
            return developer(texts[0])


def message_of(value: dict[str, Any]) -> Message:
    """Converts a message that vLLM returned into a message of openai-harmony."""
    flat = {**value.get("author", {}), **{key: value[key] for key in value if key != "author"}}
    contents = [TextContent(text=part["text"]) for part in flat["content"]]
    message = Message(author=Author(role=Role(flat["role"]), name=flat.get("name")), content=contents)
    message.channel = flat.get("channel")
    message.recipient = flat.get("recipient")
    message.content_type = flat.get("content_type")
    return message


def role_of(value: dict[str, Any]) -> str:
    """The author's role in a message that vLLM returned."""
    return str(value.get("author", value)["role"])
