"""How often a case is requested again over HTTP."""

from __future__ import annotations

import pytest

from vllm_harness._exchange.delivery import Api, Chunking, Delivery
from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._regression.engines.over_http import TRIES, _retry_alone

CASE = CaseInput(name="c", text="Hello.")
SINGLE = Delivery(Chunking.TOKENS, tokens=1, api=Api.MESSAGES)


@pytest.mark.parametrize(
    ("delivery", "contents", "result", "requests"),
    [
        (SINGLE, ["joined", "right", "never"], "right", 2),
        (SINGLE, ["wrong"] * 9, "wrong", 3),
        (SINGLE, ["joined", "wrong", "wrong", "wrong"], "wrong", 4),
        (SINGLE, ["wrong", "joined", "wrong", "joined too", "other"], "wrong", TRIES),
        (Delivery(Chunking.TOKENS, tokens=3, api=Api.MESSAGES), ["wrong", "right"], "wrong", 1),
        (Delivery(Chunking.WHOLE, api=Api.MESSAGES), ["wrong", "right"], "wrong", 1),
    ],
)
def test_a_stream_of_single_tokens_is_retried(
    delivery: Delivery, contents: list[str], result: str, requests: int
) -> None:
    """The first answer without a mismatch counts, or otherwise the most frequent one."""
    remaining = iter(contents)
    answer = _retry_alone(
        lambda: CaseAnswer(family="f", case="c", delivery=delivery, content=next(remaining)),
        CASE,
        delivery,
        lambda answer: answer.content != "right",
    )
    assert answer.content == result
    assert len(contents) - len(list(remaining)) == requests
