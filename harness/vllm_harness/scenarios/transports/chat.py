"""Chat Completions: the whole history as messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_harness.protocol.chat.objects import REASONING_KEYS
from vllm_harness.protocol.core.events import Json
from vllm_harness.scenarios.format import TOOL_CHOICES, Part, Status, Tool
from vllm_harness.scenarios.tools import Result
from vllm_harness.scenarios.transports.transport import (
    Answer,
    Ask,
    Call,
    Sent,
    Transport,
    given,
    only_text,
    parts_of,
)

_STATUSES: Mapping[object, Status] = {
    "stop": "completed",
    "tool_calls": "completed",
    "length": "incomplete",
    "content_filter": "incomplete",
}


def request_of(ask: Ask) -> Json:
    """The request: the messages of the answers as they came."""
    system = [{"role": "system", "content": ask.instructions}] if ask.instructions is not None else []
    before = [message for said in ask.line for message in (*_messages(said.sent), *said.answer.said)]
    return given(
        model=ask.model,
        messages=[*system, *before, *_messages(ask.sent)],
        tools=[_tool(name, tool) for name, tool in ask.toolbox.functions.items()] or None,
        tool_choice=_choice(ask.tool_choice),
        max_completion_tokens=ask.max_tokens,
        temperature=0,
    )


def answer_of(body: Json) -> Answer:
    """What the first choice of a completion means."""
    choices = [each for each in body.get("choices") or () if isinstance(each, dict)]
    choice = choices[0] if choices else {}
    message = choice.get("message") or {}
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    return Answer(
        _STATUSES.get(choice.get("finish_reason"), "failed"),
        str(message.get("content") or ""),
        next((str(message[key]) for key in REASONING_KEYS if message.get(key)), ""),
        tuple(_call(call) for call in calls),
        (message,) if message else (),
        str(body.get("id")),
    )


def _call(call: Json) -> Call:
    function = call.get("function") or {}
    return Call(str(call.get("id")), str(function.get("name")), str(function.get("arguments", "")))


def _messages(sent: Sent) -> Iterator[Json]:
    for result in sent.results:
        yield {"role": "tool", "tool_call_id": result.call_id, "content": _output(result)}
    if sent.user:
        text = only_text(sent.user)
        yield {"role": "user", "content": [_part(part) for part in sent.user] if text is None else text}


def _output(result: Result) -> str | list[Json]:
    """OpenAI has only texts here; vLLM takes what it takes of a user."""
    return [_part(part) for part in parts_of(result)] if result.images else result.text


def _part(part: Part) -> Json:
    if part.image is not None:
        return {"type": "image_url", "image_url": {"url": part.image}}
    return {"type": "text", "text": part.text}


def _tool(name: str, tool: Tool) -> Json:
    function = given(
        name=name, description=tool.description or None, parameters=tool.parameters, strict=tool.strict
    )
    return {"type": "function", "function": function}


def _choice(name: str | None) -> Any:
    if name in (None, *TOOL_CHOICES):
        return name
    return {"type": "function", "function": {"name": name}}


CHAT = Transport(
    "chat",
    "chat",
    "/v1/chat/completions",
    request_of,
    answer_of,
    {"stream": True, "stream_options": {"include_usage": True}},
)
