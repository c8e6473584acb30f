"""What a server changes before a template sees it is reported by name."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from tests.unit.extras.templates.test_dialects import template
from vllm_harness._scripted.dialects import find_dialect
from vllm_harness.extras.templates.chat_template import ChatTemplate
from vllm_harness.extras.templates.conversations import TOOL
from vllm_harness.extras.templates.deviations import deviation
from vllm_harness.extras.templates.pairs import load_pairs, template_of

REASONING = {"reasoning": "I look.", "reasoning_content": "I look."}
CALL = {
    "id": "call00000",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}},
}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL, CALL], **REASONING},
    {"role": "tool", "tool_call_id": "call00000", "name": "get_weather", "content": "rain"},
    {"role": "tool", "tool_call_id": "call00000", "name": "get_weather", "content": "sun"},
]


@pytest.fixture(params=["ling3", "qwen35", "glm45"])
def shown(request: pytest.FixtureRequest) -> ChatTemplate:
    pair = load_pairs()[request.param]
    return template_of(pair, find_dialect(request.param), template(request.param))


def changed(**keys: Any) -> list[dict[str, Any]]:
    messages = deepcopy(MESSAGES)
    for key in keys:
        del messages[2][key]
    return messages


def named(shown: ChatTemplate, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str | None:
    """What a server is said to do that gives a template these messages and tools."""
    return deviation(shown, MESSAGES, [TOOL], shown(messages, tools, generate=True))


def test_a_faithful_server_has_no_deviation(shown: ChatTemplate) -> None:
    assert named(shown, deepcopy(MESSAGES), [TOOL]) is None


def test_a_server_that_drops_reasoning(shown: ChatTemplate) -> None:
    assert named(shown, changed(**REASONING), [TOOL]) == "the reasoning of the history is left out"


def test_a_server_that_sorts_the_keys_of_schemas(shown: ChatTemplate) -> None:
    tools = json.loads(json.dumps([TOOL], sort_keys=True))
    assert named(shown, MESSAGES, tools) == "the keys of the tools' schemas are sorted"


def test_a_server_that_drops_calls_or_the_system_message(shown: ChatTemplate) -> None:
    assert named(shown, changed(tool_calls=0), [TOOL]) == "the calls of the history are left out"
    assert named(shown, MESSAGES[1:], [TOOL]) == "the system message is left out"


def test_a_server_that_mixes_up_the_outputs(shown: ChatTemplate) -> None:
    messages = [*MESSAGES[:3], MESSAGES[4], MESSAGES[3]]
    assert named(shown, messages, [TOOL]) == "the outputs of the tools are in reverse order"


def test_another_deviation_has_both_texts(shown: ChatTemplate) -> None:
    messages = [*MESSAGES[:-1], {**MESSAGES[-1], "content": "snow"}]
    found = named(shown, messages, [TOOL])
    assert found is not None
    assert "snow" in found
    assert "sun" in found
