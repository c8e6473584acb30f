"""The request of each API for a case, and how its response is read as an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import requests

from vllm_harness.protocol import ChatAccumulator, MessageAccumulator, ResponseAccumulator
from vllm_harness.protocol.core.events import as_json
from vllm_harness.protocol.core.sse import SSEEvent, SSEParser
from vllm_harness.regression.cases.case import CaseInput
from vllm_harness.regression.cases.delivery import Api, Delivery, Shape
from vllm_harness.regression.engines.answer import AnswerError, Call, ErrorCode
from vllm_harness.scripted.in_server.vllm_harness_names import SCRIPT_REFUSED

STOP_STRING = "NEVERSAID"
"""In no text: vLLM holds back as many characters, less one, while the stop string may begin there."""
MOST_TOKENS = 4096
"""Of an answer over Messages, whose requests must have a limit; more than any case has."""


def http_error(response: requests.Response) -> AnswerError:
    """The error of a response that is none of an answer."""
    error = response.json().get("error") or {}
    refused = error.get("code") == SCRIPT_REFUSED
    code = ErrorCode.GRAMMAR_REFUSED if refused else f"http_{response.status_code}"
    return AnswerError(code=code, message=str(error.get("message")))


def _chat(input_: CaseInput, name: str, *, stream: bool) -> dict[str, Any]:
    tools = {"tools": list(input_.tools)} if input_.tools else {}
    choice = _tool_choice(input_, lambda function: {"type": "function", "function": {"name": function}})
    messages = [{"role": "user", "content": _user_message(input_, name)}]
    return {"messages": messages, "stream": stream, **tools, **choice, **_limit(input_, "max_tokens")}


def _responses(input_: CaseInput, name: str, *, stream: bool) -> dict[str, Any]:
    flat = [{"type": "function", "strict": False, **tool["function"]} for tool in input_.tools]
    choice = _tool_choice(input_, lambda function: {"type": "function", "name": function})
    tools = {"tools": flat} if flat else {}
    request = {"input": _user_message(input_, name), "stream": stream, "store": False}
    return {**request, **tools, **choice, **_limit(input_, "max_output_tokens")}


def _messages(input_: CaseInput, name: str, *, stream: bool) -> dict[str, Any]:
    functions = [tool["function"] for tool in input_.tools]
    tools = [{**_without_parameters(each), "input_schema": each["parameters"]} for each in functions]
    modes = {"none": "none", "auto": "auto", "required": "any"}
    choice: dict[str, Any] = {}
    if input_.tool_choice is not None:
        mode = modes.get(input_.tool_choice)
        named = {"type": "tool", "name": input_.tool_choice}
        choice = {"tool_choice": {"type": mode} if mode else named}
    request = {
        "messages": [{"role": "user", "content": _user_message(input_, name)}],
        "max_tokens": input_.max_tokens or MOST_TOKENS,
        "stream": stream,
    }
    return {**request, **({"tools": tools} if tools else {}), **choice}


def _without_parameters(function: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in function.items() if key != "parameters"}


def _limit(input_: CaseInput, field: str) -> dict[str, int]:
    return {} if input_.max_tokens is None else {field: input_.max_tokens}


def _chat_with_stop(input_: CaseInput, name: str) -> dict[str, Any]:
    return {**_chat(input_, name, stream=True), "stop": [STOP_STRING]}


def _messages_with_stop(input_: CaseInput, name: str) -> dict[str, Any]:
    return {**_messages(input_, name, stream=True), "stop_sequences": [STOP_STRING]}


def _user_message(input_: CaseInput, name: str) -> str:
    """Its first line is the name that selects the script."""
    return f"{name}\n{input_.user_message}" if input_.user_message else name


def _tool_choice(input_: CaseInput, named: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    if input_.tool_choice is None:
        return {}
    is_mode = input_.tool_choice in ("none", "auto", "required")
    return {"tool_choice": input_.tool_choice if is_mode else named(input_.tool_choice)}


def _read_chat(response: requests.Response) -> dict[str, Any]:
    body = response.json()
    message = body["choices"][0]["message"]
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    calls = _functions(message.get("tool_calls") or ())
    return {**_fields(reasoning, message.get("content"), calls), **_usage(body, "completion_tokens_details")}


class _CallChunks:
    """How many chunks of a Chat stream have a part of each call's arguments, by the call's number."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def feed(self, event: SSEEvent) -> None:
        """Takes the next event."""
        for choice in (as_json(event) or {}).get("choices") or ():
            for call in (choice.get("delta") or {}).get("tool_calls") or ():
                has_part = bool((call.get("function") or {}).get("arguments"))
                self.counts[call["index"]] = self.counts.get(call["index"], 0) + has_part


def _read_chat_stream(response: requests.Response) -> dict[str, Any]:
    chat, chunks = ChatAccumulator(), _CallChunks()
    error = _feed(response, chat, chunks)
    numbered = zip(_functions(chat.tool_calls), sorted(chunks.counts.items()), strict=True)
    calls = [{**call, "index": index, "chunks": count} for call, (index, count) in numbered]
    return _fields(chat.reasoning, chat.text, calls, error)


def _read_responses(response: requests.Response) -> dict[str, Any]:
    whole = ResponseAccumulator()
    body = response.json()
    for index, item in enumerate(body["output"]):
        whole.feed({"type": "response.output_item.done", "output_index": index, "item": item})
    fields = _fields(whole.reasoning, whole.text, whole.tool_calls)
    return {**fields, **_usage(body, "output_tokens_details")}


def _read_responses_stream(response: requests.Response) -> dict[str, Any]:
    accumulator = ResponseAccumulator()
    error = _feed(response, accumulator)
    return _fields(accumulator.reasoning, accumulator.text, accumulator.tool_calls, error)


def _read_messages(response: requests.Response) -> dict[str, Any]:
    """The body as its blocks, each as a stream of it begins."""
    whole = MessageAccumulator()
    for index, block in enumerate(response.json()["content"]):
        whole.feed({"type": "content_block_start", "index": index, "content_block": block})
    return _message_fields(whole)


def _read_messages_stream(response: requests.Response) -> dict[str, Any]:
    accumulator = MessageAccumulator()
    error = _feed(response, accumulator)
    return _message_fields(accumulator, error)


def _message_fields(message: MessageAccumulator, error: AnswerError | None = None) -> dict[str, Any]:
    calls = [{**block, "arguments": _written(block.get("input"))} for block in message.tool_calls]
    return _fields(message.reasoning, message.text, calls, error)


def _written(value: Any) -> str:
    """The input of a call as text; one that is text already is no JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _feed(
    response: requests.Response,
    *into: ChatAccumulator | ResponseAccumulator | MessageAccumulator | _CallChunks,
) -> AnswerError | None:
    """Feeds a stream; gives the error that it ends with, if it does."""
    parser, error = SSEParser(), None
    for chunk in response.iter_content(None):
        for event in parser.feed(chunk):
            if event.event == "error" or event.data.startswith('{"error"'):
                refused = f'"{SCRIPT_REFUSED}"' in event.data
                code = ErrorCode.GRAMMAR_REFUSED if refused else ErrorCode.ERROR_EVENT
                error = AnswerError(code=code, message=event.data[:300])
            for each in into:
                each.feed(event)
    return error


def _usage(body: dict[str, Any], details: str) -> dict[str, int]:
    """How many tokens of reasoning a usage counts, where it counts any kind."""
    counted = ((body.get("usage") or {}).get(details) or {}).get("reasoning_tokens")
    return {} if counted is None else {"counted_reasoning": counted}


def _functions(calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**(call.get("function") or {}), "id": call.get("id")} for call in calls]


def _fields(
    reasoning: str | None,
    content: str | None,
    calls: Sequence[dict[str, Any]],
    error: AnswerError | None = None,
) -> dict[str, Any]:
    """The fields of an `Answer`.

    Of a stream that a grammar refuses only the refusal is an answer: how far it came is chance.
    """
    if error is not None and error.code == ErrorCode.GRAMMAR_REFUSED:
        return {"error": error}
    read = tuple(
        Call(
            name=call.get("name"),
            arguments=call.get("arguments") or "",
            id=call.get("call_id") or call.get("id"),
            index=call.get("index"),
            chunks=call.get("chunks"),
        )
        for call in calls
    )
    return {"reasoning": reasoning, "content": content, "calls": read, "error": error}


@dataclass(frozen=True)
class Exchange:
    """A request for a delivery, and how its response is read.

    Attributes:
        path: of the URL.
        body: gives the request's fields for a case and the name that selects its script.
        read: gives the fields of an `Answer`.
    """

    path: str
    body: Callable[[CaseInput, str], dict[str, Any]]
    read: Callable[[requests.Response], dict[str, Any]]


_CHAT_PATH, _RESPONSES_PATH, _MESSAGES_PATH = "/v1/chat/completions", "/v1/responses", "/v1/messages"
_CHAT_STREAM = Exchange(_CHAT_PATH, partial(_chat, stream=True), _read_chat_stream)
_RESPONSES_STREAM = Exchange(_RESPONSES_PATH, partial(_responses, stream=True), _read_responses_stream)
_MESSAGES_STREAM = Exchange(_MESSAGES_PATH, partial(_messages, stream=True), _read_messages_stream)
_STREAMS: Mapping[Api, Exchange] = {
    Api.CHAT: _CHAT_STREAM,
    Api.RESPONSES: _RESPONSES_STREAM,
    Api.MESSAGES: _MESSAGES_STREAM,
}
_EXCHANGES: Mapping[tuple[Api, Shape], Exchange] = {
    (Api.CHAT, Shape.WHOLE): Exchange(_CHAT_PATH, partial(_chat, stream=False), _read_chat),
    (Api.CHAT, Shape.HELD_BACK): Exchange(_CHAT_PATH, _chat_with_stop, _read_chat_stream),
    (Api.RESPONSES, Shape.WHOLE): Exchange(
        _RESPONSES_PATH, partial(_responses, stream=False), _read_responses
    ),
    (Api.MESSAGES, Shape.WHOLE): Exchange(_MESSAGES_PATH, partial(_messages, stream=False), _read_messages),
    (Api.MESSAGES, Shape.HELD_BACK): Exchange(_MESSAGES_PATH, _messages_with_stop, _read_messages_stream),
}


def exchange_of(delivery: Delivery) -> Exchange:
    """The request that a delivery over HTTP takes, on a server that has its stream interval."""
    assert delivery.api is not None
    return _EXCHANGES.get((delivery.api, delivery.shape)) or _STREAMS[delivery.api]
