"""The Responses API: with the server's state (`previous_response_id`), or with the history sent back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_harness.protocol.core.events import Json
from vllm_harness.protocol.responses import schema
from vllm_harness.scenarios.format import TOOL_CHOICES, BuiltIn, Part, Status, Tool
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

MCP_CALL = "mcp_call"
APPROVAL = "mcp_approval_request"
CODE = "code_interpreter_call"
SEARCH = "web_search_call"
_OF_SERVER = (MCP_CALL, APPROVAL, CODE, SEARCH)
_STATUSES: Mapping[object, Status] = {"completed": "completed", "incomplete": "incomplete"}


def with_state(ask: Ask) -> Json:
    """The request that continues a stored response."""
    return _request(ask, list(_items(ask.sent)), ask.line[-1].answer.id if ask.line else None)


def with_history(ask: Ask) -> Json:
    """The request that holds all that was said: the items of the answers as they came."""
    before = [item for said in ask.line for item in (*_items(said.sent), *said.answer.said)]
    return _request(ask, [*before, *_items(ask.sent)], None)


def answer_of(body: Json) -> Answer:
    """What a response means."""
    output = [item for item in body.get("output") or () if isinstance(item, dict)]
    return Answer(
        _STATUSES.get(body.get("status"), "failed"),
        _texts(output, "message", "output_text"),
        _texts(output, "reasoning", "reasoning_text"),
        tuple(_call(item) for item in output if item.get("type") in (*schema.CALLS, *_OF_SERVER)),
        tuple(output),
        str(body.get("id")),
    )


def _call(item: Json) -> Call:
    kind = item.get("type")
    asks = kind == APPROVAL
    named: dict[object, BuiltIn] = {CODE: "code_interpreter", SEARCH: "web_search"}
    if kind in named:
        arguments = {"code": item.get("code")} if kind == CODE else item.get("action")
        return Call(str(item.get("id")), named[kind], json.dumps(arguments), served=True)
    return Call(
        str(item.get("id" if asks else "call_id")),
        str(item.get("name")),
        str(item.get("arguments", "")),
        served=kind in _OF_SERVER,
        asks=asks,
    )


def _request(ask: Ask, items: list[Json], previous: str | None) -> Json:
    return given(
        model=ask.model,
        instructions=ask.instructions,
        input=items,
        previous_response_id=previous,
        tools=[
            *(_tool(name, tool) for name, tool in ask.toolbox.functions.items()),
            *ask.toolbox.of_server,
        ]
        or None,
        tool_choice=_choice(ask.tool_choice),
        max_output_tokens=ask.max_tokens,
        background=ask.background or None,
        temperature=0,
    )


def _items(sent: Sent) -> Iterator[Json]:
    for result in sent.results:
        yield {"type": "function_call_output", "call_id": result.call_id, "output": _output(result)}
    for request in sent.approved:
        yield {"type": "mcp_approval_response", "approval_request_id": request, "approve": True}
    if sent.user:
        text = only_text(sent.user)
        yield {"role": "user", "content": [_part(part) for part in sent.user] if text is None else text}


def _output(result: Result) -> str | list[Json]:
    return [_part(part) for part in parts_of(result)] if result.images else result.text


def _part(part: Part) -> Json:
    if part.image is not None:
        return {"type": "input_image", "image_url": part.image, "detail": "auto"}
    return {"type": "input_text", "text": part.text}


def _tool(name: str, tool: Tool) -> Json:
    return given(
        type="function",
        name=name,
        description=tool.description or None,
        parameters=tool.parameters,
        strict=tool.strict,
    )


def _choice(name: str | None) -> Any:
    return name if name in (None, *TOOL_CHOICES) else {"type": "function", "name": name}


def _texts(output: list[Json], item: str, part: str) -> str:
    return "".join(
        str(each.get("text", ""))
        for found in output
        if found.get("type") == item
        for each in found.get("content") or ()
        if isinstance(each, dict) and each.get("type") == part
    )


_STREAM = {"stream": True}
WITH_STATE = Transport("responses", "responses", "/v1/responses", with_state, answer_of, _STREAM)
WITH_HISTORY = Transport("responses-history", "responses", "/v1/responses", with_history, answer_of, _STREAM)
