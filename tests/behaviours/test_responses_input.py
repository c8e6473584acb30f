"""Responses: every shape of `input` is accepted, and what it says reaches the model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.behaviours.tools import RESPONSES_TOOL
from tests.case_files import cases
from tests.responses_api import SHOW, Responses, prompt_of
from vllm_harness.testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_needs("responses")

TWO_BEGINNINGS = pytest.mark.vllm_known_defect("vllm-38187")


@pytest.mark.parametrize("case", cases("responses_input"))
def test_input_reaches_the_prompt(case: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    script("The answer.")
    tools = {"tools": [RESPONSES_TOOL]} if case.get("tools") else {}
    response = responses.create(case["input"], **tools, max_output_tokens=16, extra_body=SHOW)
    prompt = prompt_of(response)
    assert [text for text in case["prompt"] if prompt.count(text) != 1] == [], f"once each in {prompt}"
    places = [prompt.index(text) for text in case["prompt"]]
    assert places == sorted(places), f"in order in {prompt}"


@pytest.mark.covers("VR-002", "VR-032")
def test_instructions_come_before_the_input(responses: Responses, script: ScriptWriter) -> None:
    script("Answer.")
    input_items = [{"role": "user", "content": "First question."}]
    response = responses.create(
        input_items, instructions="Speak of rivers only.", max_output_tokens=16, extra_body=SHOW
    )
    prompt = prompt_of(response)
    assert prompt.count("Speak of rivers only.") == 1
    assert prompt.index("Speak of rivers only.") < prompt.index("First question.")
    assert response.instructions == "Speak of rivers only."


@pytest.mark.vllm_needs("chat")
@pytest.mark.covers("VR-073")
@TWO_BEGINNINGS
@pytest.mark.parametrize("effort", [None, "low"])
def test_prompt_is_that_of_chat(effort: str | None, responses: Responses, script: ScriptWriter) -> None:
    """The same conversation costs the same tokens on both APIs."""
    script("The Seine.", times=2)
    conversation = [
        {"role": "user", "content": "Name a river in Egypt."},
        {"role": "assistant", "content": "The Nile."},
        {"role": "user", "content": "And one in France?"},
    ]
    reasoning = {"reasoning": {"effort": effort}} if effort else {}
    response = responses.create(conversation, **reasoning, max_output_tokens=32)
    chat = responses.client.chat.completions.create(
        model=responses.model,
        messages=conversation,  # type: ignore[arg-type]
        temperature=0,
        max_tokens=32,
        **({"reasoning_effort": effort} if effort else {}),  # type: ignore[arg-type]
    )
    assert response.usage is not None
    assert chat.usage is not None
    assert response.usage.input_tokens == chat.usage.prompt_tokens


@pytest.mark.vllm_needs("chat", "tools")
@pytest.mark.covers("VR-073")
@TWO_BEGINNINGS
def test_prompt_of_a_tool_story_is_that_of_chat(responses: Responses, script: ScriptWriter) -> None:
    script("Rain in Oslo.", times=2)
    arguments = '{"city": "Oslo"}'
    response = responses.create(
        [
            {"role": "user", "content": "How is the weather in Oslo?"},
            {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": arguments},
            {"type": "function_call_output", "call_id": "call_1", "output": "Four degrees and rain."},
        ],
        tools=[RESPONSES_TOOL],
        max_output_tokens=32,
    )
    function = {key: RESPONSES_TOOL[key] for key in ("name", "description", "parameters", "strict")}
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    chat = responses.client.chat.completions.create(
        model=responses.model,
        messages=[
            {"role": "user", "content": "How is the weather in Oslo?"},
            {"role": "assistant", "tool_calls": [call]},  # type: ignore[list-item, misc]
            {"role": "tool", "tool_call_id": "call_1", "content": "Four degrees and rain."},
        ],
        tools=[{"type": "function", "function": function}],  # type: ignore[list-item]
        temperature=0,
        max_tokens=32,
    )
    assert response.usage is not None
    assert chat.usage is not None
    assert response.usage.input_tokens == chat.usage.prompt_tokens
