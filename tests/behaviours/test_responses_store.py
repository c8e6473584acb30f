"""Responses: what the server stores, and what of it the prompt of a follow-up contains."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response

from tests.behaviours.tools import RESPONSES_TOOL
from tests.responses_api import SHOW, Responses, prompt_of
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import When
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_needs("responses"), pytest.mark.vllm_needs("store")]

NAME = "Remember this word: heliotrope."


@pytest.mark.covers("VR-016", "VR-033", "LS-001")
@pytest.mark.parametrize("store", [True, None])
def test_stored_body_is_the_body(
    store: bool | None, responses: Responses, openai_client: OpenAI, script: ScriptWriter
) -> None:
    """Responses are stored by default, and a follow-up does not change them."""
    script("I shall.")
    created = responses.create(NAME, max_output_tokens=32, **({} if store is None else {"store": store}))
    assert openai_client.responses.retrieve(created.id).model_dump() == created.model_dump()
    script("It is heliotrope.")
    responses.create("Which word?", previous_response_id=created.id, max_output_tokens=32)
    assert openai_client.responses.retrieve(created.id).model_dump() == created.model_dump()


@pytest.mark.vllm_needs("structured_output", "tools")
@pytest.mark.covers("VR-016", "LS-001")
def test_stored_is_what_was_sent_by_each_field(
    vllm_server: VllmServer, http: Endpoint, script: ScriptWriter
) -> None:
    """Compares JSON that has a schema and a tool, whose fields have other names in vLLM's Python types."""
    script('{"word": "heliotrope"}', constrained=True)
    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    format = {"type": "json_schema", "name": "word", "schema": {**schema, "additionalProperties": False}}
    request = {"input": NAME, "text": {"format": format}, "tools": [RESPONSES_TOOL], "tool_choice": "none"}
    sent = http.post("/v1/responses", json={"model": vllm_server.model, **request}).json()
    assert http.get(f"/v1/responses/{sent['id']}").json() == sent


@pytest.mark.covers("LS-002", "VR-016")
def test_stored_stream_is_its_terminal_response(
    responses: Responses, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script("I shall.")
    streamed = responses.stream(NAME, max_output_tokens=32).terminal
    assert openai_client.responses.retrieve(streamed.id).model_dump() == streamed.model_dump()


@pytest.mark.covers("VR-016", "VR-033")
@pytest.mark.parametrize("stream", [False, True])
def test_not_stored_cannot_be_retrieved_or_followed(
    stream: bool, responses: Responses, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script("I shall.")
    ask = responses.stream if stream else responses.create
    answered: Any = ask(NAME, store=False, max_output_tokens=32)
    created: Response = answered.terminal if stream else answered
    with pytest.raises(openai.NotFoundError, match=f"Response with id '{created.id}' not found."):
        openai_client.responses.retrieve(created.id)
    with pytest.raises(openai.NotFoundError, match=created.id):
        openai_client.responses.create(
            model=responses.model, input="Which word?", previous_response_id=created.id
        )


@pytest.mark.covers("VR-021", "VR-035", "LS-004", "OR-010")
def test_chain_of_three_turns_by_its_prompts(responses: Responses, script: ScriptWriter) -> None:
    """Each turn's prompt contains every earlier text once and in order."""
    turns = [("First question?", "One."), ("Second question?", "Two."), ("Third question?", "Three.")]
    history: list[str] = []
    previous: Response | None = None
    for question, answer in turns:
        script(answer)
        response = responses.create(
            question,
            previous_response_id=previous.id if previous else None,
            max_output_tokens=24,
            extra_body=SHOW,
        )
        assert response.previous_response_id == (previous.id if previous else None)
        prompt = prompt_of(response)
        history.append(question)
        assert [prompt.count(text) for text in history] == [1] * len(history)
        assert [prompt.index(text) for text in history] == sorted(prompt.index(text) for text in history)
        history += [response.output_text.strip()] if script.exact else []
        previous = response
    assert len(history) == (6 if script.exact else 3)


@pytest.mark.covers("VR-021")
def test_streamed_turn_is_followed_like_a_body(responses: Responses, script: ScriptWriter) -> None:
    script("Heliotrope it is.", times=2)
    body = responses.create(NAME, max_output_tokens=24)
    streamed = responses.stream(NAME, max_output_tokens=24).terminal
    script("It is heliotrope.", times=2)
    prompts = [
        prompt_of(
            responses.create("Which?", previous_response_id=first.id, max_output_tokens=24, extra_body=SHOW)
        )
        for first in (body, streamed)
    ]
    if script.exact:
        assert "Heliotrope it is." in prompts[0]
        assert prompts[0] == prompts[1]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-021", "VR-013")
@pytest.mark.parametrize("stream", [False, True])
def test_incomplete_response_is_followed(stream: bool, responses: Responses, script: ScriptWriter) -> None:
    """The text of an incomplete response is part of the conversation that a follow-up continues."""
    script("one two three four five six " * 6, expect="truncated")
    request = responses.request(NAME, {"max_output_tokens": 12})
    answer: Any = responses.client.responses.create(**request, stream=stream)
    first = list(answer)[-1].response if stream else answer
    assert first.status == "incomplete"
    script("It is heliotrope.")
    second = responses.create("Which?", previous_response_id=first.id, extra_body=SHOW)
    assert second.status == "completed"
    assert second.previous_response_id == first.id
    places = [prompt_of(second).find(text) for text in (NAME, first.output_text.strip(), "Which?")]
    assert -1 not in places
    assert places == sorted(set(places))


@pytest.mark.covers("VR-022", "AG-004")
async def test_two_children_of_one_parent_know_nothing_of_each_other(
    vllm_server: VllmServer, async_openai_client: AsyncOpenAI, script: ScriptWriter
) -> None:
    """Runs two follow-ups at once, then a follow-up of one: a branch contains only its own turns."""
    script("Noted.", when=When(user="parent"))
    script("Noted left.", when=When(user="left"))
    script("Noted right.", when=When(user="right"))
    script("Noted deep.", when=When(user="deep"))

    async def ask(text: str, previous: Response | None) -> Response:
        return await async_openai_client.responses.create(
            model=vllm_server.model,
            input=f"The {text} word.",
            previous_response_id=previous.id if previous else None,
            temperature=0,
            max_output_tokens=16,
            extra_body=SHOW,
        )

    parent = await ask("parent", None)
    left, right = await asyncio.gather(ask("left", parent), ask("right", parent))
    deep = await ask("deep", left)

    def words_in_prompt(response: Response) -> set[str]:
        words = ("parent", "left", "right", "deep")
        return {word for word in words if f"The {word} word." in prompt_of(response)}

    assert words_in_prompt(left) == {"parent", "left"}
    assert words_in_prompt(right) == {"parent", "right"}
    assert words_in_prompt(deep) == {"parent", "left", "deep"}


@pytest.mark.covers("VR-062")
@pytest.mark.vllm_needs("reasoning")
def test_thoughts_of_a_finished_turn_are_left_out(responses: Responses, script: ScriptWriter) -> None:
    """The follow-up's prompt has the same length however long the reasoning was."""
    sizes = []
    for thoughts in ("Hm.", "A very long thought about nothing in particular, " * 8):
        script("Noted.", reasoning=thoughts)
        first = responses.create(NAME)
        script("Heliotrope.")
        second = responses.create("Which word?", previous_response_id=first.id)
        assert second.usage is not None
        sizes.append(second.usage.input_tokens)
    if script.exact:
        assert sizes[0] == sizes[1]


@pytest.mark.covers("VR-021")
def test_unknown_parent_is_not_found(responses: Responses) -> None:
    answer = responses.post(
        {"model": responses.model, "input": "hi", "previous_response_id": "resp_of_nobody"}
    )
    assert answer.status_code == 404
    assert "resp_of_nobody" in answer.json()["error"]["message"]
