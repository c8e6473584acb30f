"""The order of a stream's events, through a gateway and without."""

from __future__ import annotations

import json

import pytest

from vllm_harness.extras.gateways.answers import SideExchange
from vllm_harness.extras.gateways.compare import compare_answers

THOUGHTS, WORDS, OTHERS, END = (0, "reasoning"), (0, "content"), (1, "content"), (0, "finish")


def answer(*parts: tuple[int, str]) -> SideExchange:
    """A stream of Chat Completions with these parts, each in a chunk of its own."""
    frames = []
    for index, part in parts:
        delta = {} if part == "finish" else {part: "Hi"}
        choice = {"index": index, "delta": delta, "finish_reason": "stop" if part == "finish" else None}
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}
        frames.append(f"data: {json.dumps(chunk)}\n\n".encode())
    headers, chunks = (
        {"content-type": "text/event-stream"},
        [(float(at), one) for at, one in enumerate(frames)],
    )
    return SideExchange(path="/v1/chat/completions").answered(200, headers, chunks)


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
