"""The valid samples from which the examples of the rules are built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vllm_harness._protocol.chat import render as chat
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.examples import Example, as_sse, edited
from vllm_harness._protocol.core.split import halves
from vllm_harness._protocol.messages import render as messages
from vllm_harness._protocol.responses import render as responses


class Sample(NamedTuple):
    """A value that breaks no rule.

    Attributes:
        kind: responses, chat, messages, sse, body, conversation, compare, through or known.
        build: builds the value as a list, such as the events of a stream.
    """

    kind: str
    build: Callable[[], list[Json]]


def _call(number: int = 1, arguments: str = '{"city":"Paris"}') -> Json:
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "get_weather", "arguments": arguments},
    }


_CITATION = {
    "type": "url_citation",
    "url": "https://example.org",
    "title": "Example",
    "start_index": 0,
    "end_index": 5,
}
_SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
_LIST_TOOLS = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "docs", "tools": []}
_MCP_CALL = {
    "id": "mcp_1",
    "type": "mcp_call",
    "status": "completed",
    "server_label": "docs",
    "name": "search",
    "arguments": '{"q":"x"}',
    "output": "found",
    "error": None,
    "approval_request_id": None,
}
_REFUSAL = {
    **responses.message(""),
    "content": [{"type": "refusal", "refusal": "I cannot help with that."}],
}
_CODE = {
    "id": "ci_1",
    "type": "code_interpreter_call",
    "status": "completed",
    "code": "print(1)",
    "container_id": "cntr_1",
    "outputs": None,
}
_CUSTOM = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_9", "name": "sql", "input": "select 1"}
_SHELL = {
    "id": "sh_1",
    "type": "shell_call",
    "status": "completed",
    "call_id": "call_8",
    "action": {"commands": ["ls -l", "pwd"]},
}
_IMAGE = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "aGk="}


def _failed() -> list[Json]:
    events = responses.response_events([], status="failed")
    error = {
        "type": "error",
        "error": {"type": "server_error", "code": "server_error", "message": "it broke", "param": None},
    }
    return edited(events, [("insert", -1, {**error, "sequence_number": 0})])


def _two_part_message() -> Json:
    message = responses.message("Hello, world")
    first = message["content"][0]
    return {**message, "content": [first, {**first, "text": "And more."}]}


def _conversation() -> list[Json]:
    call = responses.function_call('{"city":"Paris"}')
    first = responses.response([call], id="resp_a")
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    second = responses.response(
        [responses.message("It is sunny.")], id="resp_b", previous_response_id="resp_a"
    )
    path = "/v1/responses"
    return [
        {"method": "POST", "path": path, "request": {"input": "weather?"}, "body": first},
        {
            "method": "POST",
            "path": path,
            "request": {"input": [output], "previous_response_id": "resp_a"},
            "body": second,
        },
        {"method": "GET", "path": f"{path}/resp_b", "request": {}, "body": second},
    ]


def _replay() -> list[Json]:
    events = responses.response_events([responses.message("Hello, world")], background=True)
    path = "/v1/responses"
    return [
        {"method": "POST", "path": path, "request": {"stream": True, "background": True}, "events": events},
        {
            "method": "GET",
            "path": f"{path}/resp_1?stream=true&starting_after=3",
            "request": {},
            "events": events[4:],
        },
    ]


def _twice(api: str, *, left: bool = False, seconds: float = 0.1, **answered: Any) -> list[Json]:
    """A server's answer, and the same answer passed on by a gateway."""
    streamed = "events" in answered
    media = "text/event-stream" if streamed else "application/json"
    seen = {"api": api, "body": {"seed": 7}, "states": ["cut" if left else "done"]}
    answer = {
        **{"api": api, "stream": streamed, "status": 200, "left": left, "seen": [seen]},
        "headers": {"content-type": media, "x-request-id": "1"},
        **answered,
    }
    if streamed:
        answer["times"] = [round(seconds * number, 3) for number in range(len(answered["events"]))]
    return [answer, answer]


def _chat_twice(message: Json, **more: Any) -> list[Json]:
    usage, split = more.pop("usage", None), more.pop("split", halves)
    chunks = chat.completion_chunks([message], usage=usage, split=split)
    return _twice("chat", events=[*chunks, "[DONE]"], **more)


_HELLO = {"content": "Hello, world"}
_ERROR = {"message": "no such model", "type": "NotFoundError", "param": "model", "code": 404}
_TWO = {"tool_calls": [_call(), _call(2, '{"city":"Oslo"}')]}
_REASONED = {"reasoning": "Let me think.", "content": "Hello, world"}
_TEXT = [responses.message("Hello, world")]
_TEXT_BLOCKS = [messages.text("Hello, world")]
_THINKING_BLOCKS = [messages.thinking("Let me think."), *_TEXT_BLOCKS]
_TOOL_USE = [messages.tool_use({"city": "Paris"})]
_TWO_TOOL_USES = [*_TOOL_USE, messages.tool_use({"city": "Oslo"}, number=2)]
_CALL = [responses.reasoning(), responses.function_call('{"city":"Paris"}')]
_TWO_CALLS = [
    responses.function_call('{"city":"Paris"}'),
    responses.function_call('{"city":"Oslo"}', number=2),
]
_TRUNCATED = [responses.message("Hello, wor", status="incomplete")]


def _response(*items: Json, **options: Any) -> Sample:
    return Sample("responses", lambda: responses.response_events(items, **options))


def _chat(*messages: Json, **options: Any) -> Sample:
    return Sample("chat", lambda: chat.completion_chunks(messages, **options))


def _message(*blocks: Json) -> Sample:
    return Sample("messages", lambda: messages.answer_events(blocks))


def _body(build: Callable[[], Json]) -> Sample:
    return Sample("body", lambda: [build()])


def _through(build: Callable[[], list[Json]]) -> Sample:
    return Sample("through", build)


SAMPLES: dict[str, Sample] = {
    "text": _response(*_TEXT),
    "empty_text": _response(responses.message("")),
    "background": _response(*_TEXT, background=True),
    "call": _response(*_CALL),
    "two_calls": _response(*_TWO_CALLS),
    "raw_reasoning": _response(responses.reasoning("Let me think."), *_TEXT),
    "summary": _response(responses.reasoning(summary=["First.", "Then."]), *_TEXT),
    "refusal": _response(_REFUSAL),
    "two_parts": _response(_two_part_message()),
    "annotated": _response(responses.message("Hello", annotations=[_CITATION] * 2)),
    "search": _response(_SEARCH, *_TEXT),
    "mcp": _response(_LIST_TOOLS, _MCP_CALL, *_TEXT),
    "code": _response(_CODE, *_TEXT),
    "custom": _response(_CUSTOM),
    "shell": _response(_SHELL),
    "image": _response(_IMAGE, *_TEXT),
    "incomplete": _response(*_TRUNCATED, status="incomplete"),
    "failed": Sample("responses", _failed),
    "sse": Sample("sse", lambda: responses.response_events(_TEXT)),
    "chat_sse": Sample("sse", lambda: chat.completion_chunks([_HELLO])),
    "chat_text": _chat(_HELLO),
    "chat_call": _chat({"tool_calls": [_call()]}),
    "chat_two_calls": _chat(_TWO),
    "chat_reasoning": _chat(_REASONED),
    "chat_choices": _chat({"content": "Yes."}, {"content": "No."}),
    "chat_usage": _chat(_HELLO, usage=chat.USAGE),
    "messages_text": _message(*_TEXT_BLOCKS),
    "messages_thinking": _message(*_THINKING_BLOCKS),
    "messages_call": _message(*_TEXT_BLOCKS, *_TOOL_USE),
    "messages_two_calls": _message(*_TWO_TOOL_USES),
    "answer": _body(lambda: messages.answer(_TEXT_BLOCKS)),
    "answer_call": _body(lambda: messages.answer([*_TEXT_BLOCKS, *_TOOL_USE])),
    "messages_error": _body(
        lambda: {"type": "error", "error": {"type": "not_found_error", "message": "model: no such model"}}
    ),
    "body": _body(lambda: responses.response([*_CALL, *_TEXT])),
    "search_body": _body(lambda: responses.response([_SEARCH, *_TEXT])),
    "incomplete_body": _body(lambda: responses.response(_TRUNCATED, "incomplete")),
    "failed_body": _body(lambda: responses.response([], "failed")),
    "error_body": _body(lambda: {"error": {**_ERROR, "type": "invalid_request_error", "code": None}}),
    "completion": _body(lambda: chat.completion([_HELLO])),
    "completion_call": _body(lambda: chat.completion([{"tool_calls": [_call(), _call(2)]}])),
    "conversation": Sample("conversation", _conversation),
    "replay": Sample("conversation", _replay),
    "pair": Sample("compare", lambda: [responses.response(_TEXT), responses.response(_TEXT)]),
    "through_text": _through(lambda: _twice("responses", events=responses.response_events(_TEXT))),
    "through_chat": _through(lambda: _chat_twice(_HELLO)),
    "through_chat_usage": _through(lambda: _chat_twice(_HELLO, usage=chat.USAGE)),
    "through_reasoning": _through(lambda: _chat_twice(_REASONED)),
    "through_calls": _through(lambda: _chat_twice(_TWO)),
    "through_call_item": _through(
        lambda: _twice("responses", events=responses.response_events([responses.function_call("{}")]))
    ),
    "through_long": _through(lambda: _chat_twice({"content": "word " * 12}, split=str.split)),
    "through_left": _through(lambda: _chat_twice(_HELLO, left=True)),
    "through_body": _through(lambda: _twice("chat", body=chat.completion([_HELLO]))),
    "through_reasoning_body": _through(lambda: _twice("chat", body=chat.completion([_REASONED]))),
    "through_calls_body": _through(lambda: _twice("chat", body=chat.completion([_TWO]))),
    "through_error": _through(lambda: _twice("chat", body={"error": _ERROR}, status=404)),
    "run": Sample(
        "known", lambda: [{"known": "IT103", "versions": "<0.26", "version": "0.24.0", "occurred": ["IT103"]}]
    ),
}


def kind_of(example: Example) -> str:
    """The kind of an example, which is the kind of its sample."""
    return SAMPLES[example.sample].kind


def build(example: Example) -> list[Json]:
    """The values of an example: events, or one body, or exchanges, or two bodies, or two answers."""
    return edited(SAMPLES[example.sample].build(), example.edits)


def wire(example: Example) -> str:
    """An example of a stream as server-sent events, with its textual edits applied."""
    text = as_sse(build(example))
    for edit in example.edits:
        if edit[0] == "replace":
            text = text.replace(edit[1], edit[2], 1)
    return text
