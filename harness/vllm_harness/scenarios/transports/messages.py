"""Anthropic Messages: the whole history as messages of content blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from vllm_harness.protocol.core.events import Json
from vllm_harness.scenarios.format import Part, Status, Tool
from vllm_harness.scenarios.pictures import DATA_URL
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
    "end_turn": "completed",
    "tool_use": "completed",
    "stop_sequence": "completed",
    "max_tokens": "incomplete",
}
WITHOUT_LIMIT = 4096
"""The API wants a limit: this one where the length of the context is not known, else half of it."""


def request_of(ask: Ask) -> Json:
    """The request: the blocks of the answers as they came."""
    limit = ask.max_tokens or (ask.context // 2 if ask.context else WITHOUT_LIMIT)
    before = [
        message
        for said in ask.line
        for message in (*_messages(said.sent), {"role": "assistant", "content": list(said.answer.said)})
    ]
    return given(
        model=ask.model,
        max_tokens=limit,
        system=ask.instructions,
        messages=[*before, *_messages(ask.sent)],
        tools=[_tool(name, tool) for name, tool in ask.toolbox.functions.items()] or None,
        tool_choice=_choice(ask.tool_choice),
        temperature=0,
    )


def answer_of(body: Json) -> Answer:
    """What a message means."""
    blocks = [block for block in body.get("content") or () if isinstance(block, dict)]
    return Answer(
        _STATUSES.get(body.get("stop_reason"), "failed"),
        _texts(blocks, "text"),
        _texts(blocks, "thinking"),
        tuple(_call(block) for block in blocks if block.get("type") == "tool_use"),
        tuple(blocks),
        str(body.get("id")),
    )


def _call(block: Json) -> Call:
    written = block.get("input")
    arguments = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
    return Call(str(block.get("id")), str(block.get("name")), arguments)


def _messages(sent: Sent) -> Iterator[Json]:
    """One message: results come first in it, as the API wants them."""
    results = [
        {"type": "tool_result", "tool_use_id": result.call_id, "content": _output(result)}
        | ({"is_error": True} if result.failed else {})
        for result in sent.results
    ]
    text = only_text(sent.user)
    if text is not None and not results:
        yield {"role": "user", "content": text}
    elif results or sent.user:
        yield {"role": "user", "content": [*results, *map(_part, sent.user)]}


def _output(result: Result) -> str | list[Json]:
    return [_part(part) for part in parts_of(result)] if result.images else result.text


def _part(part: Part) -> Json:
    if part.image is None:
        return {"type": "text", "text": part.text}
    inline = DATA_URL.fullmatch(part.image)
    if inline is None:
        return {"type": "image", "source": {"type": "url", "url": part.image}}
    source = {"type": "base64", "media_type": inline["type"], "data": inline["data"]}
    return {"type": "image", "source": source}


def _tool(name: str, tool: Tool) -> Json:
    return given(
        name=name, description=tool.description or None, input_schema=tool.parameters, strict=tool.strict
    )


def _choice(name: str | None) -> Json | None:
    match name:
        case None:
            return None
        case "auto" | "none":
            return {"type": name}
        case "required":
            return {"type": "any"}
        case _:
            return {"type": "tool", "name": name}


def _texts(blocks: list[Json], kind: str) -> str:
    return "".join(str(block.get(kind, "")) for block in blocks if block.get("type") == kind)


MESSAGES = Transport("messages", "messages", "/v1/messages", request_of, answer_of, {"stream": True})
