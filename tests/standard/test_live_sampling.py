"""Sampling, which only a real model can test: greedy answers, seeds, several choices, stop strings."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import pytest

from tests.chat_api import Chat, output_of
from tests.responses_api import Responses, items
from vllm_harness._testing.content import expect_content

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_live]

ASK: list[Any] = [{"role": "user", "content": "Write one sentence about the sea."}]
COUNT: list[Any] = [{"role": "user", "content": "Count from one to ten in words."}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "city": {"enum": ["Paris", "Rome"]},
    },
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}


@pytest.mark.vllm_greedy
@pytest.mark.vllm_needs("chat")
@pytest.mark.covers("VC-001")
def test_logprobs_are_probabilities(chat: Chat) -> None:
    """Probabilities are sorted and add up to at most 1, and the chosen greedy token comes first."""
    body = chat.body(ASK, logprobs=True, top_logprobs=5, max_tokens=16)
    logprobs = body.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    for entry in logprobs.content:
        assert entry.logprob <= 0
        likely = [math.exp(top.logprob) for top in entry.top_logprobs]
        assert sum(likely) <= 1 + 1e-4
        assert likely == sorted(likely, reverse=True)
        assert entry.token == entry.top_logprobs[0].token


@pytest.mark.vllm_needs("responses", "chat")
@pytest.mark.covers("VR-005")
def test_logprobs_are_the_same_over_both_apis(responses: Responses, chat: Chat) -> None:
    question = ASK[0]["content"]
    body = responses.create(
        question, include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=16
    )
    over_chat = chat.body(ASK, logprobs=True, top_logprobs=2, max_tokens=16).choices[0].logprobs
    assert over_chat is not None
    assert over_chat.content
    part = items(body, "message")[0].content[0]
    assert [entry.token for entry in part.logprobs] == [entry.token for entry in over_chat.content]
    for entry, other in zip(part.logprobs, over_chat.content, strict=True):
        assert entry.logprob == pytest.approx(other.logprob, abs=1e-3)


@pytest.mark.vllm_needs("chat")
@pytest.mark.covers("VC-010")
def test_a_seed_gives_the_same_words_again(chat: Chat) -> None:
    sampled = {"temperature": 0.8, "max_tokens": 16}
    first, again, other = (output_of(chat.body(ASK, seed=seed, **sampled)).content for seed in (7, 7, 8))
    assert first == again
    expect_content(first != other, f"two seeds, one sentence: {first!r}")


@pytest.mark.vllm_needs("chat")
@pytest.mark.covers("VC-010")
def test_choices_are_drawn_apart(chat: Chat) -> None:
    """With `n=3`, the choices have different answers, and the usage counts the tokens of all choices."""
    body = chat.body(ASK, n=3, temperature=1.0, seed=7, max_tokens=12)
    assert [choice.index for choice in body.choices] == [0, 1, 2]
    words = {output_of(body, choice).content for choice in range(3)}
    expect_content(len(words) > 1, f"three choices, one sentence: {words}")
    assert body.usage is not None
    assert 3 <= body.usage.completion_tokens <= 36


@pytest.mark.vllm_greedy
@pytest.mark.vllm_needs("chat")
@pytest.mark.covers("VC-010")
@pytest.mark.vllm_known_defect("several-choices-at-temperature-0")
def test_greedy_choices_are_the_same(chat: Chat) -> None:
    body = chat.body(ASK, n=2, temperature=0, max_tokens=12)
    assert output_of(body, 0).content == output_of(body, 1).content


@pytest.mark.vllm_needs("chat")
@pytest.mark.covers("VR-059")
def test_a_stop_string_ends_real_words(chat: Chat) -> None:
    """In body and stream, the text is what the model says without a stop string, up to that string."""
    whole = output_of(chat.body(COUNT, max_tokens=48)).content
    stop = "three" if "three" in whole else whole.split()[3]
    answers = chat.both(COUNT, stop=[stop], max_tokens=48)
    assert answers.output.finish == "stop"
    assert answers.output.content == whole[: whole.index(stop)]


@pytest.mark.vllm_needs("responses", "structured_output")
@pytest.mark.covers("VR-023")
def test_words_are_held_to_a_schema(responses: Responses) -> None:
    form = {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}}
    body, _ = responses.both("Describe a person living in Rome, as JSON.", text=form, max_output_tokens=96)
    expect_content(body.status == "completed", f"an object within the budget, not {body.output_text!r}")
    jsonschema.validate(json.loads(body.output_text), PERSON)
