"""Basics of Responses: an answer, its limits, its stored state, and a call, each streamed and not."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response

from tests.responses_api import SHOW, Responses, prompt_of
from vllm_harness._exchange.server import VllmServer
from vllm_harness._testing.checks import BodyCheck
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_needs("responses")

FRANCE = "What is the capital of France? Answer in one short sentence."
PARIS = "The capital of France is Paris."


@pytest.mark.covers("VR-006", "VR-010", "VR-015", "OR-001", "OR-002")
def test_plain_answer(responses: Responses, script: ScriptWriter) -> None:
    script(PARIS, times=2)
    body, stream = responses.both(FRANCE)
    assert body.status == "completed"
    assert body.incomplete_details is None
    assert [item.type for item in body.output][-1] == "message"
    assert body.usage is not None
    assert body.usage.total_tokens == body.usage.input_tokens + body.usage.output_tokens
    assert stream.types[0] == "response.created"
    assert stream.types[-1] == "response.completed"
    assert stream.of("output_text.delta")
    expect_content("Paris" in body.output_text, f"Paris, not {body.output_text!r}")
    if script.exact:
        assert body.output_text.strip() == PARIS


@pytest.mark.covers("OR-001")
async def test_plain_answer_async(
    vllm_server: VllmServer, async_openai_client: AsyncOpenAI, script: ScriptWriter, check_body: BodyCheck
) -> None:
    script(PARIS)
    response = await async_openai_client.responses.create(
        model=vllm_server.model, input=FRANCE, temperature=0
    )
    check_body(response)
    expect_content("Paris" in response.output_text, f"Paris, not {response.output_text!r}")


@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VR-001", "GO-008")
def test_reasoning_comes_first(responses: Responses, script: ScriptWriter) -> None:
    script(PARIS, reasoning="The user asks for a capital.")
    response = responses.create(FRANCE)
    assert [item.type for item in response.output] == ["reasoning", "message"]
    reasoning = response.output[0]
    assert reasoning.type == "reasoning"
    assert reasoning.content
    if script.exact:
        assert reasoning.content[0].text.strip() == "The user asks for a capital."


@pytest.mark.covers("VR-013")
def test_max_output_tokens_gives_incomplete(responses: Responses, script: ScriptWriter) -> None:
    script("one two three four five six seven eight nine ten eleven twelve", expect="truncated")
    response = responses.create("Tell me a long story about a dragon.", max_output_tokens=8)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 8


@pytest.mark.vllm_needs("store")
@pytest.mark.covers("VR-021", "VR-035", "OR-010")
def test_three_turns_by_previous_response_id(responses: Responses, script: ScriptWriter) -> None:
    def ask(question: str, answer: str, previous: str | None) -> Response:
        script(answer)
        return responses.create(
            question, previous_response_id=previous, max_output_tokens=512, extra_body=SHOW
        )

    first = ask("What is the capital of France?", "The capital of France is Paris.", None)
    second = ask("And of Italy?", "The capital of Italy is Rome.", first.id)
    third = ask("And of Spain?", "The capital of Spain is Madrid.", second.id)
    assert second.previous_response_id == first.id
    assert len({first.id, second.id, third.id}) == 3
    prompt = prompt_of(third)
    for text in (
        "capital of France?",
        first.output_text,
        "And of Italy?",
        second.output_text,
        "And of Spain?",
    ):
        assert text.strip() in prompt, f"{text!r} is missing in the third turn's prompt"
    expect_content("Paris" in first.output_text, f"Paris, not {first.output_text!r}")
    expect_content("Rome" in second.output_text, f"Rome, not {second.output_text!r}")


@pytest.mark.vllm_needs("store")
@pytest.mark.covers("VR-016", "VR-033")
def test_store_and_retrieve(responses: Responses, script: ScriptWriter) -> None:
    script(PARIS)
    created = responses.create(FRANCE, store=True)
    assert responses.client.responses.retrieve(created.id).model_dump() == created.model_dump()


@pytest.mark.vllm_needs("store")
@pytest.mark.covers("VR-016", "VR-033")
def test_not_stored_is_not_found(responses: Responses, script: ScriptWriter, check_body: BodyCheck) -> None:
    script(PARIS)
    created = responses.create(FRANCE, store=False)
    with pytest.raises(openai.NotFoundError) as caught:
        responses.client.responses.retrieve(created.id)
    assert created.id in str(caught.value)
    check_body(caught.value.response.json())


def test_unknown_response_is_not_found(openai_client: OpenAI, check_body: BodyCheck) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.responses.retrieve("resp_does_not_exist")
    check_body(caught.value.response.json())


@pytest.mark.vllm_scripted
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_cold_prompt_writes_a_warm_one_reads(
    stream: bool, responses: Responses, script: ScriptWriter
) -> None:
    """Usage reports the cached tokens for a new prompt, and for the same prompt sent again."""
    script("Fine.", times=2)
    more: dict[str, Any] = {"extra_body": {"cache_salt": uuid4().hex}}
    prompt = f"{'word ' * 200}and an end."
    cold, warm = (
        (responses.stream(prompt, **more).terminal if stream else responses.create(prompt, **more)).usage
        for _ in range(2)
    )
    assert cold is not None
    assert warm is not None
    written, read = cold.input_tokens_details.to_dict(), warm.input_tokens_details.to_dict()
    assert written["cached_tokens"] == 0
    assert 0 < written["cache_write_tokens"] <= cold.input_tokens
    assert read["cached_tokens"] == written["cache_write_tokens"]
    assert read["cache_write_tokens"] == 0


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-025")
def test_prompt_is_found_in_the_cache_under_its_salt_alone(
    responses: Responses, script: ScriptWriter
) -> None:
    """A prompt is found in the cache only under its own salt, which is new since the cache outlives tests."""
    script("Yes.", times=4)
    salts = [uuid4().hex, uuid4().hex]
    long = "This is a long prompt that fills several blocks of the cache. " * 40
    cached = []
    for salt, stream in ((salts[0], False), (salts[1], False), (salts[0], False), (salts[0], True)):
        more = {"extra_body": {"cache_salt": salt}}
        answer = responses.stream(long, **more).terminal if stream else responses.create(long, **more)
        assert answer.usage is not None
        cached.append(answer.usage.input_tokens_details.cached_tokens)
    assert cached[:2] == [0, 0]
    assert cached[2] == cached[3] > answer.usage.input_tokens // 2
