"""What a long history costs: each request of an agent sends all calls again that came before."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import pytest

from tests.apis import APIS, PATHS, Api, Json
from tests.behaviours.tools import CHAT_TOOL, RESPONSES_TOOL
from tests.messages_api import TOOL as MESSAGES_TOOL
from vllm_harness.testing.fixtures import ScriptWriter
from vllm_harness.testing.session import Server

CALLS = 100
MOST = 3
"""How many times as long a prompt of calls may take as one of as many texts; it has twice the tokens."""
TRIES = 4


def said(api: Api, number: int) -> list[Json]:
    """An answer in words, and the user's next words."""
    return [
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": f"And on day {number}?"},
    ]


def called(api: Api, number: int) -> list[Json]:
    """A call with its output."""
    id, arguments = f"call_{number}", '{"city": "Paris"}'
    match api:
        case "responses":
            call: Json = {
                "type": "function_call",
                "call_id": id,
                "name": "get_weather",
                "arguments": arguments,
            }
            return [call, {"type": "function_call_output", "call_id": id, "output": f"Rain on day {number}."}]
        case "chat":
            function = {"name": "get_weather", "arguments": arguments}
            call = {"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": function}]}
            return [call, {"role": "tool", "tool_call_id": id, "content": f"Rain on day {number}."}]
        case "messages":
            use = {"type": "tool_use", "id": id, "name": "get_weather", "input": {"city": "Paris"}}
            result = {"type": "tool_result", "tool_use_id": id, "content": f"Rain on day {number}."}
            return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.vllm_known_defect("harmony-call-of-the-history-takes-two-milliseconds")
@pytest.mark.parametrize("api", APIS)
def test_calls_of_the_history_cost_about_what_texts_do(
    api: Api, vllm_server: Server, http: httpx.Client, script: ScriptWriter
) -> None:
    """The shortest of some times each, so that how busy the machine is does not matter."""
    script("Rain.", times=2 * TRIES)
    tool = {"responses": RESPONSES_TOOL, "chat": CHAT_TOOL, "messages": MESSAGES_TOOL}[api]
    limit = {"max_tokens": 64} if api == "messages" else {}

    def seconds(turns: Callable[[Api, int], list[Json]]) -> float:
        history = [turn for number in range(CALLS) for turn in turns(api, number)]
        turns_of = {
            "input" if api == "responses" else "messages": [{"role": "user", "content": "Hi"}, *history]
        }
        request = {"model": vllm_server.model, "tools": [tool], **turns_of, **limit}
        started = time.perf_counter()
        answer = http.post(PATHS[api], json=request)
        assert answer.status_code == 200, answer.text
        return time.perf_counter() - started

    times = [(seconds(called), seconds(said)) for _ in range(TRIES)]
    calls, texts = (min(each) for each in zip(*times, strict=True))
    assert calls < MOST * texts
