"""Responses on every model except gpt-oss: thinking on and off, and calls enforced by a grammar."""

from __future__ import annotations

import pytest

from tests.behaviours.tools import CALL, RESPONSES_TOOL, WEATHER, check_call
from tests.responses_api import SHOW, Responses, prompt_of
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_needs("responses")]

NAMED = {"type": "function", "name": "get_weather"}


@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VR-007")
@pytest.mark.parametrize(("effort", "thinking"), [("none", False), ("low", True)])
def test_reasoning_effort_switches_thinking(
    effort: str, thinking: bool, responses: Responses, script: ScriptWriter
) -> None:
    script("Paris.")
    response = responses.create("The capital of France?", reasoning={"effort": effort}, extra_body=SHOW)
    assert ("<think>\n\n</think>" not in prompt_of(response)) is thinking


@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VR-027")
def test_named_call(responses: Responses, script: ScriptWriter) -> None:
    script(calls=[CALL], constrained=True)
    response = responses.create(WEATHER, tools=[RESPONSES_TOOL], tool_choice=NAMED, max_output_tokens=128)
    check_call(next(item for item in response.output if item.type == "function_call"))
