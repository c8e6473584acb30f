"""The request for a test case over each API, and the answer that is read from the response."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vllm_harness._exchange.building import WITHOUT_LIMIT
from vllm_harness._exchange.delivery import Chunking, Delivery
from vllm_harness._protocol import Exchange
from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._regression.engines.exchanges import body_of, fields_of, path_of

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


def read(delivery: str, content: str, status: int = 200, broken: str = "") -> dict[str, Any]:
    """The fields of the answer that is read from a response with this content."""
    parsed = Delivery.parse(delivery)
    kind = "application/json" if parsed.shape is Chunking.WHOLE else "text/event-stream"
    exchange = Exchange(path=path_of(parsed))
    return fields_of(exchange.answered(status, {"content-type": kind}, [(0.1, content.encode())], broken))


def stream(*events: dict[str, Any]) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def meant(delivery: str, content: str) -> dict[str, Any]:
    fields = read(delivery, content)
    answer = CaseAnswer.model_validate({"family": "any", **fields})
    assert answer.error is None
    calls = [(call.name, json.loads(call.arguments), call.id) for call in answer.calls]
    return {"reasoning": answer.reasoning, "content": answer.content, "calls": calls}


def test_a_messages_body_is_read() -> None:
    assert meant("messages:whole", json.dumps({"type": "message", "content": BLOCKS})) == MEANT


def test_a_messages_stream_gives_the_same() -> None:
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


def test_invalid_arguments_are_kept_as_text() -> None:
    call = {**BLOCKS[2], "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"city": '}
    events = stream(
        {"type": "content_block_start", "index": 0, "content_block": call},
        {"type": "content_block_delta", "index": 0, "delta": delta},
    )
    fields = read("messages:tokens_1", events)
    assert fields["calls"][0].arguments == '{"city": '


def test_a_messages_error_event_is_an_error() -> None:
    events = stream({"type": "error", "error": {"type": "api_error", "message": "No."}})
    fields = read("messages:tokens_1", events)
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
def test_a_messages_request(choice: str | None, expected: Any) -> None:
    input_ = INPUT.model_copy(update={"tool_choice": choice})
    body = body_of(input_, Delivery.parse("messages:whole"), "call")
    assert body["tools"] == [{"name": "get_weather", "strict": True, "input_schema": PARAMETERS}]
    assert body.get("tool_choice") == expected
    assert body["max_tokens"] == WITHOUT_LIMIT
    assert body["messages"] == [{"role": "user", "content": "call"}]
    assert "stream" not in body


@pytest.mark.parametrize("before", [[], [{"reasoning": "Let"}], [{"reasoning": "Let"}, {"reasoning": " me"}]])
def test_the_answer_of_a_refused_stream_is_the_refusal(before: list[dict[str, str]]) -> None:
    error = {"error": {"code": "script_refused", "message": "The grammar takes no '\\n' here."}}
    chunks = [*({"choices": [{"index": 0, "delta": delta}]} for delta in before), error]
    written = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    answer = CaseAnswer.model_validate({"family": "any", **read("chat:tokens_1", written)})
    assert answer.is_refused
    assert (answer.reasoning, answer.content, answer.calls) == (None, None, ())


@pytest.mark.parametrize(
    ("content", "status", "broken", "code"),
    [
        ("", 0, "ConnectError: refused", "ConnectionError"),
        ("data: {}", 200, "RemoteProtocolError: peer closed", "ChunkedEncodingError"),
        ("", 200, "ReadTimeout: no end within 1 s", "ReadTimeout"),
    ],
)
def test_a_broken_answer_has_a_stable_code(content: str, status: int, broken: str, code: str) -> None:
    assert read("chat:tokens_1", content, status, broken)["error"].code == code


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        ("<html>", 200, "JSONDecodeError"),
        ('{"error": {"message": "no", "code": 400}}', 400, "http_400"),
        ('{"error": {"message": "no", "code": "script_refused"}}', 400, "grammar_refused"),
    ],
)
def test_an_error_response_has_a_code(content: str, status: int, code: str) -> None:
    assert read("chat:whole", content, status)["error"].code == code


def test_the_calls_of_a_chat_stream_have_index_and_chunks() -> None:
    deltas = [
        {"index": 0, "id": "c1", "function": {"name": "a", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"x":'}},
        {"index": 1, "id": "c2", "function": {"name": "b", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": " 1}"}},
    ]
    chunks = ({"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]} for delta in deltas)
    fields = read("chat:tokens_1", "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks))
    calls = [(call.id, call.index, call.chunks, call.arguments) for call in fields["calls"]]
    assert calls == [("c1", 0, 2, '{"x": 1}'), ("c2", 1, 1, "{}")]
