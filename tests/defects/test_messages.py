"""Defects in Anthropic's Messages API that come from the conversion to Chat Completions and back."""

from __future__ import annotations

import pytest

from tests.defects.wire import WEATHER, Wire, accepted
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("messages", "tools")]

TOOL = {
    "name": WEATHER["name"],
    "description": WEATHER["description"],
    "input_schema": WEATHER["parameters"],
}


def unguarded(*models: str) -> pytest.MarkDecorator:
    """Marks a test with the known defect for these model entries; if none is given, for all entries."""
    return pytest.mark.vllm_known_defect("vllm-48273", models=list(models))


@pytest.mark.covers("vllm-48273")
@pytest.mark.parametrize(
    "what",
    [
        pytest.param("cut", marks=unguarded("gpt-oss")),  # hermes leaves a truncated call as text
        pytest.param("malformed", marks=unguarded("gpt-oss")),
    ],
)
def test_call_with_bad_arguments_is_an_answer(what: str, wire: Wire, script: ScriptWriter) -> None:
    """Invalid arguments from the model are not a client error. Source: Anthropic API, stop_reason."""
    if what == "cut":
        script(calls=[ToolCall("get_weather", {"city": "Paris, " * 40})], expect="truncated")
    else:
        script(calls=[ToolCall("get_weather", '{"city": Paris}')])
    answer = wire.post(
        "messages",
        max_tokens=40,
        messages=[{"role": "user", "content": "Weather?"}],
        tools=[TOOL],
        tool_choice={"type": "auto"},
    )
    message = accepted(answer)
    # a call that is not valid JSON may come as text instead
    assert message["stop_reason"] in ({"max_tokens"} if what == "cut" else {"tool_use", "end_turn"})
