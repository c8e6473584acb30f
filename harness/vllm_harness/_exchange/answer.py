"""The content of an answer, independent of its API: status, text, reasoning, calls and usage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vllm_harness._protocol.conversation.exchange import Exchange
from vllm_harness._protocol.core.events import CALL_ITEMS, REASONING_KEYS, Api, Json, decode

Status = Literal["completed", "incomplete", "failed", "refused"]
MCP_CALL = "mcp_call"
APPROVAL = "mcp_approval_request"
CODE = "code_interpreter_call"
SEARCH = "web_search_call"
_BUILT_IN = {CODE: "code_interpreter", SEARCH: "web_search"}
_SERVER_ITEMS = (MCP_CALL, APPROVAL, *_BUILT_IN)
_ENDS: Mapping[Api, tuple[frozenset[str], frozenset[str]]] = {
    "responses": (frozenset({"completed"}), frozenset({"incomplete"})),
    "chat": (frozenset({"stop", "tool_calls"}), frozenset({"length", "content_filter"})),
    "messages": (frozenset({"end_turn", "tool_use", "stop_sequence"}), frozenset({"max_tokens"})),
}
"""For each API, the finish reasons or statuses of complete answers, then those of incomplete answers."""


@dataclass(frozen=True)
class Call:
    """A tool call by the model.

    Attributes:
        id: the call's id, by which its output refers to it.
        name: the name of the tool.
        arguments: the arguments as the model wrote them, which should be JSON.
        served: whether the server makes the call itself, or asks the client for approval to make it.
        asks: whether the server asks the client to approve the call.
        is_named: whether the answer contains a name for the tool, even an empty name.
    """

    id: str
    name: str
    arguments: str
    served: bool = False
    asks: bool = False
    is_named: bool = True

    @property
    def value(self) -> Any:
        """The parsed arguments; the unparsed string if they are not valid JSON."""
        try:
            return decode(self.arguments)
        except (ValueError, RecursionError):
            return self.arguments

    @property
    def values(self) -> dict[str, Any] | None:
        """The parsed arguments; None if they are not a JSON object."""
        return self.value if isinstance(self.value, dict) else None

    @property
    def given(self) -> dict[str, Any] | str:
        """The parsed arguments; the unparsed string if they are not a JSON object."""
        return self.arguments if self.values is None else self.values


@dataclass(frozen=True)
class Answer:
    """The content of an answer, independent of its API.

    Attributes:
        status: how the answer ended.
        text: the text for the user.
        reasoning: the reasoning before the text.
        calls: the tool calls, in order.
        said: the answer's messages, blocks or items, in the form in which a client sends them back.
        id: the id of the answer.
        end: the API's own value for why the answer ended (`finish_reason`, `stop_reason` or `status`).
        summary: the summary of the reasoning.
        usage: the token usage of the whole answer, in the API's own fields; empty if not reported.
        path: the JSON path of the choice; `$` for APIs without choices.
    """

    status: Status
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    said: tuple[Json, ...] = ()
    id: str = ""
    end: str = ""
    summary: str = ""
    usage: Json = field(default_factory=dict)
    path: str = "$"

    @property
    def open_calls(self) -> list[Call]:
        """The calls whose outputs the client must send."""
        return [call for call in self.calls if not call.served]

    @property
    def approvals(self) -> tuple[str, ...]:
        """The ids of the calls for which the server asks for approval."""
        return tuple(call.id for call in self.calls if call.asks)

    def meaning(self) -> Json:
        """The answer without API-specific details and without surrounding whitespace."""
        return {
            "status": self.status,
            "reasoning": self.reasoning.strip(),
            "text": self.text.strip(),
            "calls": [{"name": call.name, "arguments": call.given} for call in self.calls],
        }


def answer_to(exchange: Exchange, api: Api | None = None) -> Answer | None:
    """Reads the answer of an exchange; None if its API is unknown."""
    if (api := api or exchange.api) is None:
        return None
    if not exchange.ok:
        return Answer("failed" if exchange.broken or not exchange.status else "refused")
    return Answer("failed") if exchange.whole is None else answer_of(api, exchange.whole)


def answer_of(api: Api, body: Mapping[str, Any]) -> Answer:
    """Reads a response body; if the API has choices, only the first choice."""
    return next(answers_of(api, body), Answer("failed", id=_text(body.get("id"))))


def answers_of(api: Api, body: Mapping[str, Any]) -> Iterator[Answer]:
    """Reads each choice of a response body; in an API without choices, the whole body is one answer."""
    match api:
        case "chat":
            return (_choice(body, choice) for choice in _objects(body.get("choices")))
        case "messages":
            return iter((_message(body),))
        case "responses":
            return iter((_response(body),))


def _choice(body: Mapping[str, Any], choice: Json) -> Answer:
    message = _object(choice.get("message"))
    calls = [(call, _object(call.get("function"))) for call in _objects(message.get("tool_calls"))]
    return Answer(
        _status("chat", end := str(choice.get("finish_reason"))),
        _text(message.get("content")),
        next((_text(message[key]) for key in REASONING_KEYS if message.get(key)), ""),
        tuple(
            Call(
                _text(call.get("id")),
                _text(function.get("name")),
                _text(function.get("arguments")),
                is_named=function.get("name") is not None,
            )
            for call, function in calls
        ),
        (message,) if message else (),
        _text(body.get("id")),
        end,
        usage=_object(body.get("usage")),
        path=f"$.choices[{choice.get('index', 0)}]",
    )


def _message(body: Mapping[str, Any]) -> Answer:
    blocks = list(_objects(body.get("content")))
    uses = (block for block in blocks if block.get("type") == "tool_use")
    return Answer(
        _status("messages", end := str(body.get("stop_reason"))),
        "".join(_text(block.get("text")) for block in blocks if block.get("type") == "text"),
        "".join(_text(block.get("thinking")) for block in blocks if block.get("type") == "thinking"),
        tuple(
            Call(
                _text(use.get("id")),
                _text(use.get("name")),
                _written(use.get("input")),
                is_named=use.get("name") is not None,
            )
            for use in uses
        ),
        tuple(blocks),
        _text(body.get("id")),
        end,
        usage=_object(body.get("usage")),
    )


def _response(body: Mapping[str, Any]) -> Answer:
    items = list(_objects(body.get("output")))
    reasoning = [item for item in items if item.get("type") == "reasoning"]
    return Answer(
        _status("responses", end := str(body.get("status"))),
        "".join(_text(item.get("content")) for item in items if item.get("type") == "message"),
        "".join(_text(item.get("content")) for item in reasoning),
        tuple(_call(item) for item in items if item.get("type") in (*CALL_ITEMS, *_SERVER_ITEMS)),
        tuple(items),
        _text(body.get("id")),
        end,
        "".join(_text(item.get("summary")) for item in reasoning),
        _object(body.get("usage")),
    )


def _call(item: Json) -> Call:
    kind = str(item.get("type"))
    if kind in _BUILT_IN:
        arguments = {"code": item.get("code")} if kind == CODE else item.get("action")
        return Call(_text(item.get("id")), _BUILT_IN[kind], json.dumps(arguments), served=True)
    return Call(
        _text(item.get("id" if kind == APPROVAL else "call_id")),
        _text(item.get("name")),
        _text(item.get("arguments")),
        served=kind in _SERVER_ITEMS,
        asks=kind == APPROVAL,
        is_named=item.get("name") is not None,
    )


def _status(api: Api, end: str) -> Status:
    complete, incomplete = _ENDS[api]
    return "completed" if end in complete else "incomplete" if end in incomplete else "failed"


def _objects(value: object) -> Iterator[Json]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    """Converts a value to a string: joins the texts of a list of parts; None becomes an empty string."""
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in _objects(value))
    return "" if value is None else str(value)


def _written(value: object) -> str:
    """The input of a call as a JSON string; an input that is already a string stays as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
