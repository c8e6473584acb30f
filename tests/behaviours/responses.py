"""Behaviours of the Responses API that every model entry must show, whatever its format."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response

from harness.pytest_plugin import ScriptWriter, Server, StreamCheck
from harness.scripted.meaning import ToolCall

FRANCE = "What is the capital of France? Answer in one short sentence."
PARIS = "The capital of France is Paris."
CALL = ToolCall("get_weather", {"city": "Paris"})
SHOW_PROMPT = {"enable_response_messages": True}  # vLLM's own: the response carries the rendered prompt


def prompt_of(response: Response) -> str:
    """The prompt that the model saw, as text."""
    assert response.model_extra is not None
    return json.dumps(response.model_extra["input_messages"], ensure_ascii=False)


def test_plain_answer(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(PARIS)
    response = openai_client.responses.create(model=vllm_server.model, input=FRANCE, temperature=0)
    assert response.status == "completed"
    assert response.incomplete_details is None
    assert [item.type for item in response.output][-1] == "message"
    assert "Paris" in response.output_text
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    if script.exact:
        assert response.output_text.strip() == PARIS


async def test_plain_answer_async(
    vllm_server: Server, async_openai_client: AsyncOpenAI, script: ScriptWriter
) -> None:
    script(PARIS)
    response = await async_openai_client.responses.create(
        model=vllm_server.model, input=FRANCE, temperature=0
    )
    assert "Paris" in response.output_text


def test_instructions_reach_the_prompt(
    vllm_server: Server, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script("Paris, QED")
    response = openai_client.responses.create(
        model=vllm_server.model,
        instructions="End every answer with QED.",
        input=FRANCE,
        max_output_tokens=64,
        extra_body=SHOW_PROMPT,
    )
    prompt = prompt_of(response)
    assert prompt.count("End every answer with QED.") == 1
    assert prompt.index("End every answer") < prompt.index("What is the capital of France")


def test_max_output_tokens_gives_incomplete(
    vllm_server: Server, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script("one two three four five six seven eight nine ten eleven twelve", expect="cut")
    response = openai_client.responses.create(
        model=vllm_server.model,
        input="Tell me a long story about a dragon.",
        temperature=0,
        max_output_tokens=8,
    )
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 8


def test_stream_of_text(
    vllm_server: Server, openai_client: OpenAI, script: ScriptWriter, check_stream: StreamCheck
) -> None:
    script(PARIS)
    events = list(
        openai_client.responses.create(model=vllm_server.model, input=FRANCE, temperature=0, stream=True)
    )
    check_stream(events)
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == "response.completed"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas
    assert last.response.output_text.endswith("".join(deltas).strip())
    assert "Paris" in last.response.output_text


@pytest.mark.needs("store")
def test_three_turns_by_previous_response_id(
    vllm_server: Server, openai_client: OpenAI, script: ScriptWriter
) -> None:
    def ask(question: str, answer: str, previous: str | None) -> Response:
        script(answer)
        return openai_client.responses.create(
            model=vllm_server.model,
            input=question,
            temperature=0,
            previous_response_id=previous,
            max_output_tokens=512,
            extra_body=SHOW_PROMPT,
        )

    first = ask("What is the capital of France?", "The capital of France is Paris.", None)
    second = ask("And of Italy?", "The capital of Italy is Rome.", first.id)
    third = ask("And of Spain?", "The capital of Spain is Madrid.", second.id)
    assert "Paris" in first.output_text
    assert "Rome" in second.output_text
    assert second.previous_response_id == first.id
    assert len({first.id, second.id, third.id}) == 3
    prompt = prompt_of(third)
    for said in ("capital of France?", "Paris", "And of Italy?", "Rome", "And of Spain?"):
        assert said in prompt, f"{said!r} is missing in the third turn's prompt"


@pytest.mark.needs("store")
def test_store_and_retrieve(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(PARIS)
    created = openai_client.responses.create(model=vllm_server.model, input=FRANCE, temperature=0, store=True)
    assert openai_client.responses.retrieve(created.id).model_dump() == created.model_dump()


@pytest.mark.needs("store")
def test_not_stored_is_not_found(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(PARIS)
    created = openai_client.responses.create(
        model=vllm_server.model, input=FRANCE, temperature=0, store=False
    )
    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.responses.retrieve(created.id)
    assert created.id in str(caught.value)


def test_unknown_response_is_not_found(vllm_server: Server, openai_client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.retrieve("resp_does_not_exist")


def check_call(item: Any) -> None:
    """The one call that these tests want, complete."""
    assert item.type == "function_call"
    assert item.name == "get_weather"
    assert json.loads(item.arguments) == {"city": "Paris"}
    assert item.call_id
    assert item.status == "completed"
