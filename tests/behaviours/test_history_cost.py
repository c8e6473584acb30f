"""The cost of a long history, which matters since each request of an agent sends all earlier calls again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.apis import APIS, PATHS, Api
from tests.prompts import Step, Turn, request_of
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._testing.fixtures import ScriptWriter

CALLS = 100
MOST = 3
"""The maximum time of a prompt with calls, relative to one with as many texts and half the tokens."""
TRIES = 4


def answered(number: int) -> tuple[Turn, ...]:
    """Returns a text answer and the user's next message."""
    return ("assistant", "It rains."), ("user", f"And on day {number}?")


def called(number: int) -> tuple[Turn, ...]:
    """Returns a call and its output."""
    return ("call", str(number), "Paris"), ("output", str(number), f"Rain on day {number}.")


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.vllm_known_defect("harmony-call-of-the-history-takes-two-milliseconds")
@pytest.mark.parametrize("api", APIS)
def test_calls_of_the_history_cost_about_what_texts_do(
    api: Api, vllm_server: VllmServer, http: Endpoint, script: ScriptWriter
) -> None:
    """Uses the shortest of several measured times, so that a busy machine does not matter."""
    script("Rain.", times=2 * TRIES)

    def seconds(turns: Callable[[int], tuple[Turn, ...]]) -> float:
        history = [turn for number in range(CALLS) for turn in turns(number)]
        request = request_of(api, Step(tools=True, input=(("user", "Hi"), *history)))
        started = time.perf_counter()
        answer = http.post(PATHS[api], json={"model": vllm_server.model, **request})
        assert answer.status_code == 200, answer.text
        return time.perf_counter() - started

    times = [(seconds(called), seconds(answered)) for _ in range(TRIES)]
    calls, texts = (min(durations) for durations in zip(*times, strict=True))
    assert calls < MOST * texts
