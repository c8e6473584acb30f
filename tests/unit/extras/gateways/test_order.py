"""The order of a stream's events, with and without a gateway."""

from __future__ import annotations

import json

import pytest

from vllm_harness.extras.gateways.answers import SideExchange
from vllm_harness.extras.gateways.compare import compare_answers

REASONING, TEXT, OTHER_TEXT, END = (0, "reasoning"), (0, "content"), (1, "content"), (0, "finish")


def answer(*parts: tuple[int, str]) -> SideExchange:
    """Makes a stream of Chat Completions with these parts, each in a separate chunk."""
    frames = []
    for index, part in parts:
        delta = {} if part == "finish" else {part: "Hi"}
        choice = {"index": index, "delta": delta, "finish_reason": "stop" if part == "finish" else None}
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}
        frames.append(f"data: {json.dumps(chunk)}\n\n".encode())
    headers, chunks = (
        {"content-type": "text/event-stream"},
        [(float(at), frame) for at, frame in enumerate(frames)],
    )
    return SideExchange(path="/v1/chat/completions").answered(200, headers, chunks)


@pytest.mark.parametrize(
    ("through", "codes"),
    [
        ((OTHER_TEXT, REASONING, TEXT, END), []),  # the choices may be interleaved
        ((REASONING, TEXT, OTHER_TEXT, END), []),
        ((TEXT, REASONING, OTHER_TEXT, END), ["GW115"]),
        ((REASONING, END, TEXT, OTHER_TEXT), ["GW115"]),
    ],
)
def test_order_within_each_choice(through: tuple[tuple[int, str], ...], codes: list[str]) -> None:
    findings = compare_answers(answer(REASONING, TEXT, OTHER_TEXT, END), answer(*through))
    assert [finding.code for finding in findings if finding.code == "GW115"] == codes
