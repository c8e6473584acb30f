"""A real model's answers over several turns show that it receives the context."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response

from tests.chat_api import Chat, output_of
from tests.responses_api import SHOW, Responses, prompt_of
from vllm_harness._testing.content import expect_content

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_live]

COUNTRIES = (
    ("What is the capital of France?", "Paris"),
    ("And of Italy?", "Rome"),
    ("And of Spain?", "Madrid"),
)
SECRET = "My cat is called Biscuit. Say hello to her."
ASK_SECRET = "What is the name of my cat?"


@pytest.mark.vllm_needs("responses", "store")
@pytest.mark.covers("VR-021")
def test_country_chain_by_previous_response_id(responses: Responses) -> None:
    """Each question refers to the previous one; without that context, its answer is different."""
    answers: list[Response] = []
    for question, capital in COUNTRIES:
        previous = answers[-1].id if answers else None
        answer = responses.create(
            question, previous_response_id=previous, max_output_tokens=32, extra_body=SHOW
        )
        assert answer.previous_response_id == previous
        expect_content(capital in answer.output_text, f"{capital}, not {answer.output_text!r}")
        answers.append(answer)
    prompt = prompt_of(answers[-1])
    history = [
        part
        for (question, _), answer in zip(COUNTRIES, answers, strict=True)
        for part in (question, answer.output_text)
    ]
    places = [prompt.find(part) for part in history[:-1]]
    assert places == sorted(places)
    assert places[0] >= 0
    sizes = [answer.usage.input_tokens for answer in answers if answer.usage]
    assert sizes == sorted(set(sizes))
    for question, capital in COUNTRIES[1:]:
        alone = responses.create(question, max_output_tokens=16)
        expect_content(
            capital not in alone.output_text, f"without context no {capital}: {alone.output_text!r}"
        )


@pytest.mark.vllm_needs("responses", "store")
@pytest.mark.covers("VR-021")
def test_what_only_an_earlier_turn_told(responses: Responses) -> None:
    """Only the first turn contains the name; the body and the stream of the next turn both know it."""
    first = responses.create(SECRET, max_output_tokens=16)
    body, stream = responses.both(ASK_SECRET, previous_response_id=first.id)
    expect_content("Biscuit" in body.output_text, f"Biscuit, not {body.output_text!r}")
    assert "Biscuit" in stream.joined("output_text")
    alone = responses.create(ASK_SECRET, max_output_tokens=16)
    assert "Biscuit" not in alone.output_text


@pytest.mark.vllm_needs("responses", "store")
@pytest.mark.covers("VR-021")
def test_a_chain_that_forks(responses: Responses) -> None:
    """Neither of two turns that follow the same response contains the other in its context."""
    first = responses.create("My cat is called Biscuit. Say hello.", max_output_tokens=32)
    responses.create(
        "I have a dog called Rufus as well.", previous_response_id=first.id, max_output_tokens=32
    )
    fork = responses.create(ASK_SECRET, previous_response_id=first.id, max_output_tokens=32, extra_body=SHOW)
    assert "Rufus" not in prompt_of(fork)
    assert "Rufus" not in fork.output_text


@pytest.mark.vllm_needs("chat")
@pytest.mark.covers("LS-040")
def test_country_chain_by_messages(chat: Chat) -> None:
    messages: list[Any] = []
    for question, capital in COUNTRIES:
        messages.append({"role": "user", "content": question})
        answer = output_of(chat.body(messages, max_tokens=32)).content
        expect_content(capital in answer, f"{capital}, not {answer!r}")
        messages.append({"role": "assistant", "content": answer})


@pytest.mark.vllm_needs("responses", "chat")
@pytest.mark.covers("VR-073")
def test_both_apis_say_the_same(responses: Responses, chat: Chat) -> None:
    """With greedy sampling, the answers over both APIs are the same."""
    over_chat = chat.body([{"role": "user", "content": COUNTRIES[0][0]}], max_tokens=32)
    over_responses = responses.create(COUNTRIES[0][0], max_output_tokens=32)
    assert over_responses.usage is not None
    assert over_chat.usage is not None
    assert over_responses.usage.input_tokens == over_chat.usage.prompt_tokens
    assert over_responses.output_text == output_of(over_chat).content
