"""How an answer is read: its status, its choices, and the accumulation of its stream."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_harness._exchange.answer import Answer, answer_of, answer_to, answers_of
from vllm_harness._protocol import Exchange
from vllm_harness._protocol.core.events import Api

PATHS: dict[Api, str] = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
}


@pytest.mark.parametrize(
    ("api", "ends"),
    [
        (
            "responses",
            {"completed": "completed", "incomplete": "incomplete", "stop": "failed", None: "failed"},
        ),
        (
            "chat",
            {"stop": "completed", "tool_calls": "completed", "length": "incomplete", "end_turn": "failed"},
        ),
        ("messages", {"end_turn": "completed", "max_tokens": "incomplete", "completed": "failed"}),
    ],
)
def test_status_follows_from_the_end_in_each_api(api: Api, ends: dict[str | None, str]) -> None:
    for end, status in ends.items():
        bodies: dict[Api, dict[str, Any]] = {
            "responses": {"status": end},
            "chat": {"choices": [{"finish_reason": end, "message": {}}]},
            "messages": {"stop_reason": end},
        }
        assert answer_of(api, bodies[api]).status == status


def test_every_choice_has_its_answer_and_its_path() -> None:
    choices = [{"index": index, "message": {"content": text}} for index, text in enumerate("ab")]
    answers = list(answers_of("chat", {"choices": choices}))
    assert [(answer.path, answer.text, answer.usage) for answer in answers] == [
        ("$.choices[0]", "a", {}),
        ("$.choices[1]", "b", {}),
    ]
    assert answer_of("chat", {"choices": []}) == Answer("failed")


def test_reasoning_and_its_summary_are_separate() -> None:
    item = {
        "type": "reasoning",
        "content": [{"type": "reasoning_text", "text": "Hm."}],
        "summary": [{"type": "summary_text", "text": "Thought."}],
    }
    answer = answer_of("responses", {"status": "completed", "output": [item]})
    assert (answer.reasoning, answer.summary, answer.text) == ("Hm.", "Thought.", "")


def test_invalid_arguments_stay_text() -> None:
    block = {"type": "tool_use", "id": "c", "name": "f", "input": '{"a": '}
    (call,) = answer_of("messages", {"content": [block]}).calls
    assert (call.arguments, call.values, call.value) == ('{"a": ', None, '{"a": ')


@pytest.mark.parametrize(
    ("exchange", "status"),
    [
        (Exchange(status=0, broken="ConnectError: no"), "failed"),
        (Exchange(body={"status": "completed"}, broken="ReadError: gone"), "failed"),
        (Exchange(body={"error": {}}, status=404), "refused"),
        (Exchange(body=None), "failed"),
        (Exchange(body={"status": "completed"}), "completed"),
    ],
)
def test_incomplete_exchange_has_a_status(exchange: Exchange, status: str) -> None:
    answer = answer_to(exchange)
    assert answer is not None
    assert answer.status == status


def test_exchange_of_an_unknown_api_has_no_answer() -> None:
    assert answer_to(Exchange(body={}, path="/v1/embeddings")) is None
    assert answer_to(Exchange(body={}, method="GET", path="/v1/responses/r_1")) is None


@pytest.mark.parametrize("api", PATHS)
def test_stream_without_an_end_is_not_complete(api: Api) -> None:
    kind = {"content-type": "text/event-stream"}
    answer = answer_to(Exchange(path=PATHS[api]).answered(200, kind, [(0.1, b"data: {}\n\n")]))
    assert answer is not None
    assert answer.status == "failed"
