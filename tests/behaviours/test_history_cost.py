"""The cost of a long history, which matters since each request of an agent sends all earlier calls again."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from tests.apis import APIS, PATHS, Api
from tests.prompts import Step, Turn, request_of
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.in_server.vllm_harness_names import STEPS_HEADER, STEPS_PATH
from vllm_harness._testing.fixtures import ScriptWriter

CALLS = 100
MOST = 3
"""The maximum CPU time of a prompt with calls, relative to one with as many texts and half the tokens."""
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
    """Compares the CPU time on the event loop, in which waiting and other processes do not count."""
    script("Rain.", times=2 * TRIES)

    def seconds(turns: Callable[[int], tuple[Turn, ...]]) -> float:
        history = [turn for number in range(CALLS) for turn in turns(number)]
        request = request_of(api, Step(tools=True, input=(("user", "Hi"), *history)))
        name = uuid.uuid4().hex
        body = {"model": vllm_server.model, **request}
        answer = http.post(PATHS[api], json=body, headers={STEPS_HEADER: name})
        assert answer.status_code == 200, answer.text
        return float(http.get(STEPS_PATH + name).json()["cpu_s"])

    times = [(seconds(called), seconds(answered)) for _ in range(TRIES)]
    calls, texts = (min(durations) for durations in zip(*times, strict=True))
    assert calls < MOST * texts
