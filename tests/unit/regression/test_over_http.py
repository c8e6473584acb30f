"""What is asked again of a server, and how often."""

from __future__ import annotations

import pytest

from vllm_harness.regression.cases.delivery import Api, Delivery, Shape
from vllm_harness.regression.engines.answer import Answer
from vllm_harness.regression.engines.over_http import TRIES, _alone

SINGLE = Delivery(Shape.TOKENS, tokens=1, api=Api.MESSAGES)


@pytest.mark.parametrize(
    ("delivery", "contents", "counts", "asked"),
    [
        (SINGLE, ["joined", "right", "never"], "right", 2),
        (SINGLE, ["wrong"] * 9, "wrong", TRIES),
        (Delivery(Shape.TOKENS, tokens=3, api=Api.MESSAGES), ["wrong", "right"], "wrong", 1),
        (Delivery(Shape.WHOLE, api=Api.MESSAGES), ["wrong", "right"], "wrong", 1),
    ],
)
def test_a_stream_of_single_tokens_gets_more_than_one_try(
    delivery: Delivery, contents: list[str], counts: str, asked: int
) -> None:
    """A busy server joins tokens: an answer that matches came as was asked for."""
    left = iter(contents)
    answer = _alone(
        lambda: Answer(family="f", case="c", delivery=delivery, content=next(left)),
        delivery,
        lambda answer: answer.content != "right",
    )
    assert answer.content == counts
    assert len(contents) - len(list(left)) == asked
