"""Examples of rules as data: valid samples, and edits that break them in one place."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vllm_harness.protocol import render, render_messages
from vllm_harness.protocol.render import Json

# ("set", where, path, value) · ("unset", where, path) · ("drop", where) · ("dup", where)
# ("move", where, before) · ("insert", before, value) · ("append", value) · ("replace", old, new) for text
# where: a number, an event type, or "type#n" for its n-th occurrence
Edit = tuple[Any, ...]


@dataclass(frozen=True)
class Example:
    """A sample, and what is done to it.

    Attributes:
        sample: name in `SAMPLES`.
        edits: applied in order.
        request: the request it answers, where the rule needs one.
    """

    sample: str
    edits: tuple[Edit, ...] = ()
    request: Mapping[str, Any] | None = None

    @property
    def kind(self) -> str:
        """What the sample is: responses, chat, messages, sse, body, conversation, compare or known."""
        return SAMPLES[self.sample].kind

    def build(self) -> list[Json]:
        """The values of the example: events, or one body, or exchanges, or two bodies."""
        return edited(SAMPLES[self.sample].build(), self.edits)

    def wire(self) -> str:
        """A stream as the server sends it, textual edits applied."""
        text = as_sse(self.build())
        for edit in self.edits:
            if edit[0] == "replace":
                text = text.replace(edit[1], edit[2], 1)
        return text


class Sample(NamedTuple):
    """A valid value of some kind."""

    kind: str
    build: Callable[[], list[Json]]


def edited(values: Sequence[Json], edits: Sequence[Edit]) -> list[Json]:
    """A deep copy with edits applied; sequence numbers follow again unless an edit is about them."""
    result = [copy.deepcopy(value) for value in values]
    for operation, *rest in edits:
        if operation != "replace":
            _OPERATIONS[operation](result, *rest)
    about_numbers = any("sequence_number" in edit for edit in edits)
    if result and not about_numbers and all("sequence_number" in value for value in values):
        return render.numbered(result, values[0]["sequence_number"])
    return result


def locate(values: Sequence[Json], where: int | str) -> int:
    """Index of the event an edit is about.

    Raises:
        LookupError: there is none.
    """
    if isinstance(where, int):
        return range(len(values))[where]
    kind, _, number = where.partition("#")
    places = [index for index, value in enumerate(values) if value.get("type") == kind]
    return places[int(number or 0)]


def put(value: Any, path: str, leaf: object) -> None:
    """Sets a leaf; the path is dotted, numbers index lists (`item.content.0.text`)."""
    *parents, last = path.split(".")
    for key in parents:
        value = value[int(key)] if isinstance(value, list) else value[key]
    if isinstance(value, list):
        value[int(last)] = leaf
    else:
        value[last] = leaf


def take(value: Any, path: str) -> None:
    """Removes a leaf."""
    *parents, last = path.split(".")
    for key in parents:
        value = value[int(key)] if isinstance(value, list) else value[key]
    del value[int(last) if isinstance(value, list) else last]


def _move(values: list[Json], where: int | str, before: int | str) -> None:
    value = values.pop(locate(values, where))
    values.insert(locate(values, before), value)


_OPERATIONS: dict[str, Callable[..., None]] = {
    "set": lambda values, where, path, leaf: put(values[locate(values, where)], path, copy.deepcopy(leaf)),
    "unset": lambda values, where, path: take(values[locate(values, where)], path),
    "drop": lambda values, where: values.pop(locate(values, where)),
    "dup": lambda values, where: values.insert(
        locate(values, where), copy.deepcopy(values[locate(values, where)])
    ),
    "move": _move,
    "insert": lambda values, before, value: values.insert(locate(values, before), copy.deepcopy(value)),
    "append": lambda values, value: values.append(copy.deepcopy(value)),
}


def as_sse(events: Sequence[Json]) -> str:
    """Events as server-sent events: with `event:` lines for Responses and Messages, with [DONE] for chat."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        lines.append(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n")
    end = "data: [DONE]\n\n" if events and "choices" in events[0] else ""
    return "".join(lines) + end


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
    **render.message(""),
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
_CHAT_USAGE = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}


def _failed() -> list[Json]:
    events = render.response_events([], status="failed")
    error = {
        "type": "error",
        "error": {"type": "server_error", "code": "server_error", "message": "it broke", "param": None},
    }
    return edited(events, [("insert", -1, {**error, "sequence_number": 0})])


def _two_part_message() -> Json:
    said = render.message("Hello, world")
    return {**said, "content": [*said["content"], {**said["content"][0], "text": "And more."}]}


def _conversation() -> list[Json]:
    call = render.function_call('{"city":"Paris"}')
    first = render.response([call], id="resp_a")
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    second = render.response([render.message("It is sunny.")], id="resp_b", previous_response_id="resp_a")
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
    events = render.response_events([render.message("Hello, world")], background=True)
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


_TEXT = [render.message("Hello, world")]
_SAID = [render_messages.text("Hello, world")]
_THOUGHT = [render_messages.thinking("Let me think."), *_SAID]
_ASKED = [render_messages.tool_use({"city": "Paris"})]
_ASKED_TWICE = [*_ASKED, render_messages.tool_use({"city": "Oslo"}, number=2)]
_CALL = [render.reasoning(), render.function_call('{"city":"Paris"}')]
_TWO_CALLS = [render.function_call('{"city":"Paris"}'), render.function_call('{"city":"Oslo"}', number=2)]
_CUT = [render.message("Hello, wor", status="incomplete")]

SAMPLES: dict[str, Sample] = {
    "text": Sample("responses", lambda: render.response_events(_TEXT)),
    "empty_text": Sample("responses", lambda: render.response_events([render.message("")])),
    "background": Sample("responses", lambda: render.response_events(_TEXT, background=True)),
    "call": Sample("responses", lambda: render.response_events(_CALL)),
    "two_calls": Sample("responses", lambda: render.response_events(_TWO_CALLS)),
    "raw_reasoning": Sample(
        "responses", lambda: render.response_events([render.reasoning("Let me think."), *_TEXT])
    ),
    "summary": Sample(
        "responses", lambda: render.response_events([render.reasoning(summary=["First.", "Then."]), *_TEXT])
    ),
    "refusal": Sample("responses", lambda: render.response_events([_REFUSAL])),
    "two_parts": Sample("responses", lambda: render.response_events([_two_part_message()])),
    "annotated": Sample(
        "responses", lambda: render.response_events([render.message("Hello", annotations=[_CITATION] * 2)])
    ),
    "search": Sample("responses", lambda: render.response_events([_SEARCH, *_TEXT])),
    "mcp": Sample("responses", lambda: render.response_events([_LIST_TOOLS, _MCP_CALL, *_TEXT])),
    "code": Sample("responses", lambda: render.response_events([_CODE, *_TEXT])),
    "custom": Sample("responses", lambda: render.response_events([_CUSTOM])),
    "shell": Sample("responses", lambda: render.response_events([_SHELL])),
    "image": Sample("responses", lambda: render.response_events([_IMAGE, *_TEXT])),
    "incomplete": Sample("responses", lambda: render.response_events(_CUT, status="incomplete")),
    "failed": Sample("responses", _failed),
    "sse": Sample("sse", lambda: render.response_events(_TEXT)),
    "chat_sse": Sample("sse", lambda: render.completion_chunks([{"content": "Hello, world"}])),
    "chat_text": Sample("chat", lambda: render.completion_chunks([{"content": "Hello, world"}])),
    "chat_call": Sample("chat", lambda: render.completion_chunks([{"tool_calls": [_call()]}])),
    "chat_two_calls": Sample(
        "chat", lambda: render.completion_chunks([{"tool_calls": [_call(), _call(2, '{"city":"Oslo"}')]}])
    ),
    "chat_reasoning": Sample(
        "chat", lambda: render.completion_chunks([{"reasoning": "Let me think.", "content": "Hello, world"}])
    ),
    "chat_choices": Sample(
        "chat", lambda: render.completion_chunks([{"content": "Yes."}, {"content": "No."}])
    ),
    "chat_usage": Sample(
        "chat", lambda: render.completion_chunks([{"content": "Hello, world"}], usage=_CHAT_USAGE)
    ),
    "messages_text": Sample("messages", lambda: render_messages.answer_events(_SAID)),
    "messages_thinking": Sample("messages", lambda: render_messages.answer_events(_THOUGHT)),
    "messages_call": Sample("messages", lambda: render_messages.answer_events([*_SAID, *_ASKED])),
    "messages_two_calls": Sample("messages", lambda: render_messages.answer_events(_ASKED_TWICE)),
    "answer": Sample("body", lambda: [render_messages.answer(_SAID)]),
    "answer_call": Sample("body", lambda: [render_messages.answer([*_SAID, *_ASKED])]),
    "messages_error": Sample(
        "body",
        lambda: [{"type": "error", "error": {"type": "not_found_error", "message": "model: no such model"}}],
    ),
    "body": Sample("body", lambda: [render.response([*_CALL, *_TEXT])]),
    "search_body": Sample("body", lambda: [render.response([_SEARCH, *_TEXT])]),
    "incomplete_body": Sample("body", lambda: [render.response(_CUT, "incomplete")]),
    "failed_body": Sample("body", lambda: [render.response([], "failed")]),
    "error_body": Sample(
        "body",
        lambda: [
            {
                "error": {
                    "message": "no such model",
                    "type": "invalid_request_error",
                    "param": "model",
                    "code": None,
                }
            }
        ],
    ),
    "completion": Sample("body", lambda: [render.completion([{"content": "Hello, world"}])]),
    "completion_call": Sample("body", lambda: [render.completion([{"tool_calls": [_call(), _call(2)]}])]),
    "conversation": Sample("conversation", _conversation),
    "replay": Sample("conversation", _replay),
    "pair": Sample("compare", lambda: [render.response(_TEXT), render.response(_TEXT)]),
    "run": Sample(
        "known", lambda: [{"known": "IT103", "versions": "<0.26", "version": "0.24.0", "occurred": ["IT103"]}]
    ),
}
