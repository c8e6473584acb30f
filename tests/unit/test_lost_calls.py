"""Only calls that the parser llama3_json loses by chance are excused in scenarios and replays."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from tests.lost_calls import check_replay, lost_calls_excused, lost_calls_of_scenarios_excused
from vllm_harness._cassettes.comparing import TurnDifference
from vllm_harness._cassettes.format import RecordedChunk, RecordedExchange, RecordedRequest, RecordedResponse
from vllm_harness._cassettes.replaying import ReplayedExchange
from vllm_harness._protocol import SSEEvent
from vllm_harness._testing.defects import DefectShown

LOST = "chat-stream, turn runbook: calls: expected search_runbook, actual no call"
DIFFERENCE = TurnDifference("runbook", "meaning", "$.calls", "1 call", "nothing")


def server(name: str) -> Any:
    return SimpleNamespace(lane="scripted", vllm_version="0.32.0", entry=SimpleNamespace(name=name))


def played(turn: str, *deltas: dict[str, Any], finish: str = "stop") -> ReplayedExchange:
    choices = [{"delta": delta, "finish_reason": None} for delta in deltas]
    chunks = [{"choices": [choice]} for choice in [*choices, {"delta": {}, "finish_reason": finish}]]
    sse = tuple(RecordedChunk(at=0, data=f"data: {json.dumps(chunk)}\n\n") for chunk in chunks)
    exchange = RecordedExchange(
        turn=turn,
        request=RecordedRequest(path="/v1/chat/completions"),
        response=RecordedResponse(status=200, sse=sse),
    )
    return ReplayedExchange(turn, exchange=exchange, differences=[DIFFERENCE])


@pytest.mark.parametrize(
    ("model", "problems", "excused"),
    [
        ("llama3.1", LOST, True),
        ("llama3.1", f"{LOST}\nchat-stream, turn runbook: CP102 error $: only in the script", True),
        ("llama3.1", f"{LOST}\nchat, turn runbook: text[0]: expected a text, actual nothing", False),
        ("llama3.1", LOST.replace("no call", "other_call"), False),
        ("llama3.1", LOST.replace("chat-stream", "chat"), False),
        ("qwen3", LOST, False),
    ],
)
def test_problems_of_a_scenario(model: str, problems: str, excused: bool) -> None:
    with pytest.raises(AssertionError) as raised, lost_calls_of_scenarios_excused(server(model)):
        raise AssertionError(problems)
    assert isinstance(raised.value, DefectShown) == excused


@pytest.mark.parametrize(
    ("model", "exchanges", "excused"),
    [
        ("llama3.1", [played("a", {"role": "assistant", "content": ""})], True),
        (
            "llama3.1",
            [played("a", {"role": "assistant"}), ReplayedExchange("b", reason="not requested")],
            True,
        ),
        (
            "llama3.1",
            [ReplayedExchange("b", reason="not requested"), played("a", {"role": "assistant"})],
            False,
        ),
        ("llama3.1", [played("a", {"content": "words"})], False),
        ("llama3.1", [played("a", {"role": "assistant"}, finish="length")], False),
        ("qwen3", [played("a", {"role": "assistant"})], False),
    ],
)
def test_differences_of_a_replay(model: str, exchanges: list[ReplayedExchange], excused: bool) -> None:
    with pytest.raises(AssertionError) as raised:
        check_replay(exchanges, server(model))
    assert isinstance(raised.value, DefectShown) == excused


def test_a_replay_that_is_the_same() -> None:
    check_replay([ReplayedExchange("a")], server("llama3.1"))


@pytest.mark.parametrize(
    ("chunk", "excused"),
    [
        ({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}, True),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, True),
        ({"choices": [{"index": 0, "delta": {"content": "words"}}]}, False),
        ({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]}, False),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}, False),
        ({"choices": [{"index": 0, "delta": {}}], "error": {"message": "broken off"}}, False),
    ],
)
@pytest.mark.parametrize("as_sent", [True, False], ids=["as sent", "as parsed by the SDK"])
def test_chunks_of_a_chat(chunk: dict[str, Any], as_sent: bool, excused: bool) -> None:
    event = SSEEvent(json.dumps(chunk)) if as_sent else ChatCompletionChunk.construct(**chunk)
    check = lost_calls_excused(lambda name: lambda events: None, server("llama3.1"))("check_stream")
    if not excused:
        check([event])
        return
    with pytest.raises(DefectShown):
        check([event])
