"""Responses: every form of `input` is accepted, and its content reaches the model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.behaviours.tools import RESPONSES_TOOL
from tests.case_files import cases
from tests.responses_api import SHOW, Responses, prompt_of
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_needs("responses")


@pytest.mark.parametrize("case", cases("responses_input"))
def test_input_reaches_the_prompt(case: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    """Checks the input on every lane; on the scripted lane, the tests of prompts also compare token ids."""
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
