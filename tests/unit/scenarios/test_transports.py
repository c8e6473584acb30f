"""A turn becomes a request for each API, and answers from all APIs are read as the same meaning."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._exchange.answer import answer_of, answer_to
from vllm_harness._exchange.building import ContentPart, PastTurn, Result, TurnInput, TurnRequest
from vllm_harness._protocol import Exchange
from vllm_harness._scenarios.format import Expectation, Tool
from vllm_harness._scenarios.mismatches import mismatches
from vllm_harness._scenarios.tools import Toolbox, with_tokens
from vllm_harness._scenarios.transports import TRANSPORTS, find_transport

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = Tool.model_validate({"description": "d", "parameters": SCHEMA, "outputs": [{"output": "x"}]})
PNG = "data:image/png;base64,AAAA"
CHAT = "/v1/chat/completions"
ARGUMENTS = '{"city": "Paris"}'
BODIES: dict[str, dict[str, Any]] = {
    "responses": {
        "id": "resp_1",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "I look."}]},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c1",
                "name": "get_weather",
                "arguments": ARGUMENTS,
            },
        ],
    },
    "chat": {
        "id": "chatcmpl-1",
        "choices": [
            {
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "I look.",
                    "reasoning": "Hm.",
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "get_weather", "arguments": ARGUMENTS},
                        }
                    ],
                },
            }
        ],
    },
    "messages": {
        "id": "msg_1",
        "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Paris"}},
        ],
    },
}
MEANING = {
    "status": "completed",
    "reasoning": "Hm.",
    "text": "I look.",
    "calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}],
}


def request(name: str, **changed: Any) -> dict[str, Any]:
    """Makes the second turn's request: a failed output, a text and an image, after a turn with a call."""
    transport = TRANSPORTS[name]
    said = PastTurn(
        TurnInput((), (ContentPart(text="Weather?"),)), answer_of(transport.api, BODIES[transport.api])
    )
    sent = TurnInput(
        (Result("c1", "down", failed=True),), (ContentPart(text="And here?"), ContentPart(image=PNG))
    )
    toolbox = Toolbox({"get_weather": TOOL}, (), lambda name, arguments: None)
    ask = TurnRequest(
        "m", sent, (said,), "Be brief.", toolbox.offered, tool_choice="get_weather", context=8192
    )
    return transport.request(replace(ask, **changed))


def test_answers_from_every_api_have_the_same_meaning() -> None:
    for transport in TRANSPORTS.values():
        assert answer_of(transport.api, BODIES[transport.api]).meaning() == MEANING


def test_responses_with_state_send_only_new_items() -> None:
    sent = request("responses")
    assert sent["previous_response_id"] == "resp_1"
    assert sent["input"] == [
        {"type": "function_call_output", "call_id": "c1", "output": "down"},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "And here?"},
                {"type": "input_image", "image_url": PNG, "detail": "auto"},
            ],
        },
    ]
    assert sent["tool_choice"] == {"type": "function", "name": "get_weather"}
    assert sent["tools"] == [
        {"type": "function", "name": "get_weather", "description": "d", "parameters": SCHEMA}
    ]


def test_responses_with_history_send_everything() -> None:
    sent = request("responses-history")
    assert "previous_response_id" not in sent
    assert sent["input"][0] == {"role": "user", "content": "Weather?"}
    assert sent["input"][1:4] == BODIES["responses"]["output"]
    assert sent["input"][4:] == request("responses")["input"]


def test_chat_sends_everything() -> None:
    sent = request("chat")
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        BODIES["chat"]["choices"][0]["message"],
        {"role": "tool", "tool_call_id": "c1", "content": "down"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And here?"},
                {"type": "image_url", "image_url": {"url": PNG}},
            ],
        },
    ]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}


def test_messages_send_everything() -> None:
    sent = request("messages")
    assert (sent["system"], sent["max_tokens"]) == ("Be brief.", 4096)
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert sent["messages"][1]["content"] == BODIES["messages"]["content"]
    assert sent["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "down", "is_error": True},
        {"type": "text", "text": "And here?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ]
    assert sent["tool_choice"] == {"type": "tool", "name": "get_weather"}


def test_tool_choice_and_limit_in_each_api() -> None:
    assert [request(name, tool_choice="required")["tool_choice"] for name in TRANSPORTS] == [
        *("required", "required", "required"),
        {"type": "any"},
    ]
    limits = ("max_output_tokens", "max_output_tokens", "max_completion_tokens", "max_tokens")
    for name, limit in zip(TRANSPORTS, limits, strict=True):
        assert request(name, max_tokens=7)[limit] == 7
        assert "tool_choice" not in request(name, tool_choice=None)


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(UsageError, match="responses-history"):
        find_transport("grpc")


def came(
    content: bytes, status: int = 200, broken: str = "", kind: str = "application/json", path: str = CHAT
) -> Exchange:
    return Exchange(path=path).answered(status, {"content-type": kind}, [(0.1, content)], broken)


def test_broken_answers() -> None:
    expected = Expectation()
    body = json.dumps(BODIES["chat"]).encode()
    cases = {
        "broken off": (came(body, broken="ReadError: gone"), "failed", "answer", "ReadError"),
        "no answer": (came(b"", 0, "ConnectError: no"), "failed", "answer", "ConnectError"),
        "no JSON": (came(b"<html>"), "failed", "status", "failed"),
        "an error": (came(b'{"error": {"message": "no"}}', 400), "refused", "status", "HTTP 400"),
        "a stream that stops": (
            came(b'data: {"choices": []}\n\n', kind="text/event-stream"),
            "failed",
            "status",
            "failed",
        ),
    }
    for name, (exchange, status, what, words) in cases.items():
        answer = answer_to(exchange)
        assert answer is not None
        (mismatch,) = mismatches(expected, exchange, answer)
        assert (answer.status, mismatch.what) == (status, what), name
        assert words in mismatch.actual, name


def test_an_image_in_a_tool_output_in_each_api() -> None:
    shown = TurnInput((Result("c1", "a map", images=(PNG,)),), ())
    responses, chat, messages = (request(name, sent=shown) for name in ("responses", "chat", "messages"))
    assert responses["input"][0]["output"] == [
        {"type": "input_text", "text": "a map"},
        {"type": "input_image", "image_url": PNG, "detail": "auto"},
    ]
    assert chat["messages"][-1]["content"] == [
        {"type": "text", "text": "a map"},
        {"type": "image_url", "image_url": {"url": PNG}},
    ]
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert messages["messages"][-1]["content"][0]["content"] == [
        {"type": "text", "text": "a map"},
        {"type": "image", "source": source},
    ]


def test_requested_approvals_are_given() -> None:
    """An mcp_approval_request item, as in OpenAI's reference, counts as a call and is approved."""
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "find_user", "server_label": "desk"}
    body = {"id": "resp_1", "status": "completed", "output": [{**asked, "arguments": "{}"}]}
    answer = answer_of("responses", body)
    (call,) = answer.calls
    assert (call.name, call.asks, answer.open_calls, answer.approvals) == ("find_user", True, [], ("mcpr_1",))
    sent = request("responses", sent=TurnInput((), (), answer.approvals))
    assert sent["input"] == [
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    ]
    expected = Expectation.model_validate({"calls": [{"name": "find_user"}]})
    found = mismatches(expected, Exchange(body=body), answer)
    assert [(each.expected, each.actual) for each in found] == [("find_user", "find_user (asks)")]


def test_a_turn_may_give_an_mcp_server_another_token() -> None:
    tool = {"type": "mcp", "server_label": "desk", "headers": {"Authorization": "Bearer right"}}
    toolbox = Toolbox({}, (tool,), lambda name, arguments: None)
    for token, headers in (("wrong", {"Authorization": "Bearer wrong"}), ("", {})):
        (changed,) = with_tokens(toolbox, {"desk": token, "other": "x"}).of_server
        assert changed == {**tool, "headers": headers}
    assert with_tokens(toolbox, {}).of_server == (tool,)
