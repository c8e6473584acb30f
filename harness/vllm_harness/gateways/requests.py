"""A case as the requests of an API: the first, and the one that follows an answer."""

from __future__ import annotations

import json
from typing import Any

from vllm_harness.gateways.cases import Asked
from vllm_harness.protocol.core.events import Json

MAX_TOKENS = 400
_PLACE = {"city": {"type": "string"}, "unit": {"type": "string"}}
TOOLS: dict[str, Json] = {
    "get_weather": {
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": _PLACE, "required": ["city"]},
    },
    "get_time": {
        "description": "The time in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def first(asked: Asked, model: str, mark: str) -> Json:
    """The first request of a case.

    Args:
        model: the name that is asked for.
        mark: put behind the user's text.
    """
    case = asked.case
    body = {"model": model, **_MAKERS[asked.api](asked, f"{case.user} {mark}"), **case.more(asked.api)}
    return {**body, **({"stream": True} if asked.streamed else {}), **(case.broken or {})}


def following(asked: Asked, request: Json, answer: Json) -> Json | None:
    """The request that follows an answer: with the results of its calls, or by its id; None where none does.

    Args:
        request: the one before.
        answer: its body, or what its stream adds up to.
    """
    case = asked.case
    if case.continues:
        return {**request, "input": "Which number was it?", case.continues: answer.get("id")}
    if not case.results:
        return None
    return _FOLLOWERS[asked.api](request, answer, case.results)


def _chat(asked: Asked, text: str) -> Json:
    case = asked.case
    system = [{"role": "system", "content": case.system}] if case.system else []
    tools = [{"type": "function", "function": {"name": name, **TOOLS[name]}} for name in case.tools]
    schema = {"name": "answer", "schema": case.schema_, "strict": True}
    return {
        "messages": [*system, {"role": "user", "content": text}],
        "temperature": 0,
        "max_completion_tokens": _tokens(asked),
        **({"tools": tools} if tools else {}),
        **({"response_format": {"type": "json_schema", "json_schema": schema}} if case.schema_ else {}),
        **({"stream_options": {"include_usage": True}} if asked.streamed else {}),
    }


def _responses(asked: Asked, text: str) -> Json:
    case = asked.case
    tools = [{"type": "function", "name": name, "strict": False, **TOOLS[name]} for name in case.tools]
    schema = {"type": "json_schema", "name": "answer", "schema": case.schema_, "strict": True}
    return {
        "input": text,
        "temperature": 0,
        "max_output_tokens": _tokens(asked),
        **({"instructions": case.system} if case.system else {}),
        **({"tools": tools} if tools else {}),
        **({"text": {"format": schema}} if case.schema_ else {}),
    }


def _messages(asked: Asked, text: str) -> Json:
    case = asked.case
    tools = [
        {"name": name, "description": TOOLS[name]["description"], "input_schema": TOOLS[name]["parameters"]}
        for name in case.tools
    ]
    return {
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": _tokens(asked),
        **({"system": case.system} if case.system else {}),
        **({"tools": tools} if tools else {}),
    }


def _tokens(asked: Asked) -> int:
    return 3000 if asked.case.leaves else MAX_TOKENS


def _after_chat(request: Json, answer: Json, results: dict[str, str]) -> Json:
    message = (_objects(answer.get("choices")) or [{}])[0].get("message") or {}
    outputs = [
        {"role": "tool", "tool_call_id": call.get("id"), "content": _result(call.get("function"), results)}
        for call in _objects(message.get("tool_calls"))
    ]
    return {**request, "messages": [*request["messages"], message, *outputs]}


def _after_responses(request: Json, answer: Json, results: dict[str, str]) -> Json:
    items = _objects(answer.get("output"))
    outputs = [
        {"type": "function_call_output", "call_id": item.get("call_id"), "output": _result(item, results)}
        for item in items
        if item.get("type") == "function_call"
    ]
    return {**request, "input": [{"role": "user", "content": request["input"]}, *items, *outputs]}


def _after_messages(request: Json, answer: Json, results: dict[str, str]) -> Json:
    blocks = _objects(answer.get("content"))
    outputs = [
        {"type": "tool_result", "tool_use_id": block.get("id"), "content": _result(block, results)}
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    said = [{"role": "assistant", "content": blocks}, {"role": "user", "content": outputs}]
    return {**request, "messages": [*request["messages"], *said]}


def _objects(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _result(called: Any, results: dict[str, str]) -> str:
    name = called.get("name") if isinstance(called, dict) else None
    return results.get(str(name), json.dumps({"error": "no such tool"}))


_MAKERS = {"chat": _chat, "responses": _responses, "messages": _messages}
_FOLLOWERS = {"chat": _after_chat, "responses": _after_responses, "messages": _after_messages}
