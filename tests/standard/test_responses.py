"""Every model entry that does not speak Harmony, over the Responses API."""

from __future__ import annotations

import pytest
from openai import OpenAI

from harness.pytest_plugin import ScriptWriter, Server, StreamCheck
from tests.behaviours.responses import *  # noqa: F403
from tests.behaviours.responses import CALL, FRANCE, PARIS, SHOW_PROMPT, check_call, prompt_of
from tests.behaviours.tools import RESPONSES_TOOL

pytestmark = [pytest.mark.standard, pytest.mark.needs("responses")]

WEATHER = "What is the weather in Paris? Call the tool."
NAMED = {"type": "function", "name": "get_weather"}


@pytest.mark.needs("reasoning")
def test_reasoning_comes_first(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(PARIS, reasoning="The user asks for a capital.")
    response = openai_client.responses.create(model=vllm_server.model, input=FRANCE, temperature=0)
    assert [item.type for item in response.output] == ["reasoning", "message"]


@pytest.mark.needs("reasoning")
@pytest.mark.parametrize(("effort", "thinking"), [("none", False), ("low", True)])
def test_reasoning_effort_switches_thinking(
    effort: str, thinking: bool, vllm_server: Server, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script(PARIS)
    response = openai_client.responses.create(
        model=vllm_server.model, input=FRANCE, reasoning={"effort": effort}, extra_body=SHOW_PROMPT
    )
    assert ("<think>\\n\\n</think>" not in prompt_of(response)) is thinking


@pytest.mark.needs("tools")
def test_named_call(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(calls=[CALL], constrained=True)
    response = openai_client.responses.create(
        model=vllm_server.model,
        input=WEATHER,
        tools=[RESPONSES_TOOL],
        tool_choice=NAMED,
        temperature=0,
        max_output_tokens=128,
    )
    check_call(next(item for item in response.output if item.type == "function_call"))


@pytest.mark.needs("tools")
@pytest.mark.scripted
def test_function_call(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(calls=[CALL])
    response = openai_client.responses.create(
        model=vllm_server.model, input=WEATHER, tools=[RESPONSES_TOOL], temperature=0
    )
    assert response.status == "completed"
    assert [item.type for item in response.output][-1] == "function_call"
    check_call(response.output[-1])


@pytest.mark.needs("tools")
@pytest.mark.scripted
def test_function_call_streamed(
    vllm_server: Server, openai_client: OpenAI, script: ScriptWriter, check_stream: StreamCheck
) -> None:
    script(calls=[CALL])
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
