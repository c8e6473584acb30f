"""The order of a stream's events, through a gateway and without."""

from __future__ import annotations

import json

import pytest

from vllm_harness.extras.gateways.answers import EVENT_STREAM, Answer
from vllm_harness.extras.gateways.compare import compare_answers
from vllm_harness.protocol.core.sse import SSEEvent

THOUGHTS, WORDS, OTHERS, END = (0, "reasoning"), (0, "content"), (1, "content"), (0, "finish")


def answer(*parts: tuple[int, str]) -> Answer:
    """A stream of Chat Completions with these parts, each in a chunk of its own."""
    frames = []
    for index, part in parts:
        delta = {} if part == "finish" else {part: "Hi"}
        choice = {"index": index, "delta": delta, "finish_reason": "stop" if part == "finish" else None}
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}
        frames.append(SSEEvent(json.dumps(chunk)))
    headers, times = {"content-type": EVENT_STREAM}, map(float, range(len(frames)))
    return Answer("chat", True, 200, headers, frames=tuple(frames), times=tuple(times))


@pytest.mark.parametrize(
    ("through", "codes"),
    [
        ((OTHERS, THOUGHTS, WORDS, END), []),  # choices take turns as they come
        ((THOUGHTS, WORDS, OTHERS, END), []),
        ((WORDS, THOUGHTS, OTHERS, END), ["GW115"]),
        ((THOUGHTS, END, WORDS, OTHERS), ["GW115"]),
    ],
)
def test_order_is_that_of_each_choice(through: tuple[tuple[int, str], ...], codes: list[str]) -> None:
    found = compare_answers(answer(THOUGHTS, WORDS, OTHERS, END), answer(*through))
    assert [finding.code for finding in found if finding.code == "GW115"] == codes
