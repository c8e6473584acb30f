"""gpt-oss over the Responses API."""

from __future__ import annotations

import pytest
from openai import OpenAI

from harness.pytest_plugin import ScriptWriter, Server, StreamCheck
from tests.behaviours.responses import *  # noqa: F403
from tests.behaviours.responses import CALL, FRANCE, PARIS, SHOW_PROMPT, check_call, prompt_of
from tests.behaviours.tools import RESPONSES_TOOL

pytestmark = [pytest.mark.harmony, pytest.mark.needs("responses")]

WEATHER = "What is the weather in Paris?"


def test_reasoning_comes_first(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(PARIS, reasoning="The user asks for a capital.")
    response = openai_client.responses.create(model=vllm_server.model, input=FRANCE, temperature=0)
    assert [item.type for item in response.output] == ["reasoning", "message"]
    reasoning = response.output[0]
    assert reasoning.type == "reasoning"
    assert reasoning.content
    if script.exact:
        assert reasoning.content[0].text == "The user asks for a capital."


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_reasoning_effort_reaches_the_system_message(
    effort: str, vllm_server: Server, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script(PARIS)
    response = openai_client.responses.create(
        model=vllm_server.model, input=FRANCE, reasoning={"effort": effort}, extra_body=SHOW_PROMPT
    )
    assert f"reasoning: {effort}" in prompt_of(response).lower().replace(
        'reasoning_effort": "', "reasoning: "
    )


def test_function_call(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(reasoning="I need the weather.", calls=[CALL])
    response = openai_client.responses.create(
        model=vllm_server.model, input=WEATHER, tools=[RESPONSES_TOOL], temperature=0
    )
    assert response.status == "completed"
    assert [item.type for item in response.output] == ["reasoning", "function_call"]
    check_call(response.output[1])


def test_function_call_streamed(
    vllm_server: Server, openai_client: OpenAI, script: ScriptWriter, check_stream: StreamCheck
) -> None:
    script(reasoning="I need the weather.", calls=[CALL])
    events = list(
        openai_client.responses.create(
            model=vllm_server.model, input=WEATHER, tools=[RESPONSES_TOOL], temperature=0, stream=True
        )
    )
    check_stream(events)
    done = [
        e.item for e in events if e.type == "response.output_item.done" and e.item.type == "function_call"
    ]
    assert len(done) == 1
    check_call(done[0])
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == done[0].arguments
    assert not [event.type for event in events if "code_interpreter" in event.type]


def test_function_call_then_answer(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(reasoning="I need the weather.", calls=[CALL])
    first = openai_client.responses.create(
        model=vllm_server.model, input=WEATHER, tools=[RESPONSES_TOOL], temperature=0
    )
    call = first.output[-1]
    assert call.type == "function_call"
    script("It is 21 degrees and sunny in Paris.")
    second = openai_client.responses.create(
        model=vllm_server.model,
        previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees, sunny"}],
        tools=[RESPONSES_TOOL],
        temperature=0,
        extra_body=SHOW_PROMPT,
    )
    assert "21" in second.output_text
    assert "21 degrees, sunny" in prompt_of(second)
