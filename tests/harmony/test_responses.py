"""Responses on gpt-oss: reasoning, reasoning effort, and calls that the real model makes by itself."""

from __future__ import annotations

import pytest

from tests.behaviours.tools import CALL, RESPONSES_TOOL, WEATHER, check_call
from tests.responses_api import SHOW, Responses, messages_of, prompt_of
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_harmony, pytest.mark.vllm_needs("responses")]


@pytest.mark.covers("VR-032")
@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_reasoning_effort_reaches_the_system_message(
    effort: str, responses: Responses, script: ScriptWriter
) -> None:
    script("Paris.")
    response = responses.create("The capital of France?", reasoning={"effort": effort}, extra_body=SHOW)
    system = messages_of(response)[0]
    assert system["role"] == "system"
    assert system["content"][0]["reasoning_effort"].lower() == effort


@pytest.mark.covers("VR-037", "VR-041")
def test_function_call_after_reasoning(responses: Responses, script: ScriptWriter) -> None:
    script(reasoning="I need the weather.", calls=[CALL], times=2)
    body, stream = responses.both(WEATHER, tools=[RESPONSES_TOOL])
    kinds = [item.type for item in body.output]
    expect_content(kinds == ["reasoning", "function_call"], f"reasoning, then a call, not {kinds}")
    check_call(body.output[1])
    check_call(stream.terminal.output[1])


@pytest.mark.covers("VR-041")
def test_function_call_then_answer(responses: Responses, script: ScriptWriter) -> None:
    script(reasoning="I need the weather.", calls=[CALL])
    first = responses.create(WEATHER, tools=[RESPONSES_TOOL])
    call = first.output[-1]
    expect_content(call.type == "function_call", f"a call, not {call.type}")
    assert call.type == "function_call"
    script("It is 21 degrees and sunny in Paris.")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees, sunny"}
    second = responses.create(
        [output], previous_response_id=first.id, tools=[RESPONSES_TOOL], extra_body=SHOW
    )
    assert "21 degrees, sunny" in prompt_of(second)
    expect_content("21" in second.output_text, f"21 degrees, not {second.output_text!r}")
