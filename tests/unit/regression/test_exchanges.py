"""The request of each API for a case, and its response read as an answer."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest
from requests import Response

from vllm_harness.regression.cases.case import CaseInput
from vllm_harness.regression.cases.delivery import Delivery
from vllm_harness.regression.engines.answer import Answer
from vllm_harness.regression.engines.exchanges import MOST_TOKENS, exchange_of

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS, "strict": True}}
INPUT = CaseInput(name="call", text="any", tools=(TOOL,))
MEANT: dict[str, Any] = {
    "reasoning": "Let me think.",
    "content": "I will check.",
    "calls": [("get_weather", {"city": "Paris"}, "call_1")],
}
BLOCKS = [
    {"type": "thinking", "thinking": "Let me think.", "signature": "s"},
    {"type": "text", "text": "I will check."},
    {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Paris"}},
]


def response(content: str) -> Response:
    made = Response()
    made.status_code, made.raw = 200, BytesIO(content.encode())
    return made


def stream(*events: dict[str, Any]) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def meant(delivery: str, content: str) -> dict[str, Any]:
    fields = exchange_of(Delivery.parse(delivery)).read(response(content))
    answer = Answer.model_validate({"family": "any", **fields})
    assert answer.error is None
    calls = [(call.name, json.loads(call.arguments), call.id) for call in answer.calls]
    return {"reasoning": answer.reasoning, "content": answer.content, "calls": calls}


def test_a_body_of_messages_is_read_block_by_block() -> None:
    assert meant("messages:whole", json.dumps({"type": "message", "content": BLOCKS})) == MEANT


def test_a_stream_of_messages_adds_up_to_the_same() -> None:
    thinking, text, call = BLOCKS
    pieces = [
        {**thinking, "thinking": ""},
        {"type": "thinking_delta", "thinking": "Let me think."},
        {**text, "text": ""},
        {"type": "text_delta", "text": "I will check."},
        {**call, "input": {}},
        {"type": "input_json_delta", "partial_json": '{"city": '},
        {"type": "input_json_delta", "partial_json": '"Paris"}'},
    ]
    events, index = [], -1
    for piece in pieces:
        is_delta = str(piece["type"]).endswith("_delta")
        index += not is_delta
        kind, key = ("content_block_delta", "delta") if is_delta else ("content_block_start", "content_block")
        events.append({"type": kind, "index": index, key: piece})
    assert meant("messages:tokens_1", stream(*events)) == MEANT


def test_a_broken_input_stays_as_it_was_streamed() -> None:
    call = {**BLOCKS[2], "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"city": '}
    events = stream(
        {"type": "content_block_start", "index": 0, "content_block": call},
        {"type": "content_block_delta", "index": 0, "delta": delta},
    )
    fields = exchange_of(Delivery.parse("messages:tokens_1")).read(response(events))
    assert fields["calls"][0].arguments == '{"city": '


def test_an_error_event_of_messages_ends_the_answer() -> None:
    events = stream({"type": "error", "error": {"type": "api_error", "message": "No."}})
    fields = exchange_of(Delivery.parse("messages:tokens_1")).read(response(events))
    assert fields["error"].code == "error_event"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, None),
        ("none", {"type": "none"}),
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ("get_weather", {"type": "tool", "name": "get_weather"}),
    ],
)
def test_a_request_of_messages_has_its_own_words(choice: str | None, expected: Any) -> None:
    input_ = INPUT.model_copy(update={"tool_choice": choice})
    body = exchange_of(Delivery.parse("messages:whole")).body(input_, "call")
    assert body["tools"] == [{"name": "get_weather", "strict": True, "input_schema": PARAMETERS}]
    assert body.get("tool_choice") == expected
    assert body["max_tokens"] == MOST_TOKENS
    assert body["messages"] == [{"role": "user", "content": "call"}]
    assert body["stream"] is False


@pytest.mark.parametrize("before", [[], [{"reasoning": "Let"}], [{"reasoning": "Let"}, {"reasoning": " me"}]])
def test_how_far_a_refused_stream_came_is_not_its_answer(before: list[dict[str, str]]) -> None:
    error = {"error": {"code": "script_refused", "message": "The grammar takes no '\\n' here."}}
    chunks = [*({"choices": [{"index": 0, "delta": delta}]} for delta in before), error]
    written = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    read = exchange_of(Delivery.parse("chat:tokens_1")).read(response(written))
    answer = Answer.model_validate({"family": "any", **read})
    assert answer.is_refused
    assert (answer.reasoning, answer.content, answer.calls) == (None, None, ())
