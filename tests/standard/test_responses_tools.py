"""Responses on every model except gpt-oss: tools in namespaces, and custom tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.behaviours.tools import PARAMETERS
from tests.responses_api import SHOW, Responses, Stream, items, prompt_of
from vllm_harness._scripted.book import Raw
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_needs("responses", "tools")]

NAMESPACE: dict[str, Any] = {
    "type": "namespace",
    "name": "meteo",
    "description": "All about the weather",
    "tools": [
        {"type": "function", "name": "look", "description": "Weather now", "parameters": PARAMETERS},
        {"type": "function", "name": "guess", "description": "Weather to come", "parameters": PARAMETERS},
    ],
}
CUSTOM: dict[str, Any] = {"type": "custom", "name": "run_code", "description": "Runs Python"}
LOOK = ToolCall("meteo__look", {"city": "Paris"})


@pytest.mark.covers("VR-031")
@pytest.mark.parametrize("named", ["look", "meteo__look"])
def test_call_in_a_namespace(named: str, responses: Responses, script: ScriptWriter) -> None:
    """The call item has the local name and the namespace; only the prompt contains the flat name."""
    script(calls=[LOOK], constrained=True, times=2)
    choice = {"type": "function", "name": named}
    body, stream = responses.both(
        "Weather in Paris?", tools=[NAMESPACE], tool_choice=choice, max_output_tokens=128, extra_body=SHOW
    )
    expect_content(body.status == "completed", "a call within the budget")
    assert prompt_of(body).count("meteo__look") == 1
    events = [event.item for event in stream.of("output_item.added", "output_item.done")]
    calls = [
        *items(body, "function_call"),
        *items(stream.terminal, "function_call"),
        *[item for item in events if item.type == "function_call"],
    ]
    assert len(calls) == 4
    assert {(call.name, call.namespace) for call in calls} == {("look", "meteo")}
    assert "city" in json.loads(items(body, "function_call")[0].arguments)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-031", "VR-044")
def test_call_in_a_namespace_goes_back(responses: Responses, script: ScriptWriter) -> None:
    """A call that is sent back in the history has its flat name in the prompt."""
    script(calls=[LOOK])
    first = responses.create("Weather in Paris?", tools=[NAMESPACE])
    (call,) = items(first, "function_call")
    assert (call.name, call.namespace) == ("look", "meteo")
    script("Sunny.")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
    history = [{"role": "user", "content": "Weather in Paris?"}, *[i.to_dict() for i in first.output], output]
    prompt = prompt_of(responses.create(history, tools=[NAMESPACE], extra_body=SHOW))
    assert prompt.count("meteo__look") == 2  # in the tool's declaration and in the call
    assert "21 degrees" in prompt


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-060", "VR-031")
def test_ambiguous_name_is_refused(responses: Responses) -> None:
    other = {**NAMESPACE, "name": "almanac"}
    body = {
        "model": responses.model,
        "input": "Weather?",
        "tools": [NAMESPACE, other],
        "tool_choice": {"type": "function", "name": "look"},
    }
    answer = responses.post(body)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "ambiguous" in message
    assert "meteo__look" in message


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-071", "LS-022")
@pytest.mark.parametrize("more", [{}, {"format": {"type": "text"}}], ids=["no format", "text"])
def test_custom_tool(more: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    """Calls to custom tools, which take free text, are custom_tool_calls; streams omit the wrapping JSON."""
    code = 'print("Zürich")\nfor i in range(3):\n    print(i)'
    call = ToolCall("run_code", {"input": code})
    script(calls=[call], constrained=True, times=2)
    body, stream = responses.both("Print something.", tools=[{**CUSTOM, **more}])
    for response in (body, stream.terminal):
        (made,) = items(response, "custom_tool_call")
        assert (made.name, made.input) == ("run_code", code)
        assert made.id.startswith("ctc_")
    assert stream.joined("custom_tool_call_input") == code
    assert [event.input for event in stream.of("custom_tool_call_input.done")] == [code]
    assert stream.of("function_call_arguments.delta") == []


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-071", "LS-022")
def test_custom_tool_and_escaped_characters(responses: Responses, script: ScriptWriter) -> None:
    """A character that JSON escapes as a surrogate pair (RFC 8259, 7) is streamed in one piece."""
    call = r'{"name": "run_code", "arguments": {"input": "say(\ud83c\udfd4\ud83c\udfd4)"}}'
    script(Raw(f"<think>\n\n</think><tool_call>\n{call}\n</tool_call><|im_end|>"), times=2)
    body, stream = responses.both("Print something.", tools=[CUSTOM])
    assert [call.input for call in items(body, "custom_tool_call")] == ["say(🏔🏔)"]
    assert stream.joined("custom_tool_call_input") == "say(🏔🏔)"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-071", "LS-022")
@pytest.mark.vllm_known_defect("cut-custom-call-sends-its-json-again")
def test_custom_tool_call_that_a_limit_cuts(responses: Responses, script: ScriptWriter) -> None:
    """If the call is truncated, deltas and input have the start of the text, without the wrapping JSON."""
    code = "print(" + " + ".join(map(str, range(1, 40))) + ")"
    script(calls=[ToolCall("run_code", {"input": code})], expect="cut")
    request = responses.request("Print something.", {"tools": [CUSTOM], "max_output_tokens": 48})
    stream = Stream(list(responses.client.responses.create(**request, stream=True)))
    assert stream.terminal.status == "incomplete"
    (call,) = items(stream.terminal, "custom_tool_call")
    assert (begun := stream.joined("custom_tool_call_input"))
    assert [event.input for event in stream.of("custom_tool_call_input.done")] == [call.input]
    assert begun == call.input
    assert code.startswith(begun)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-071", "LS-022")
def test_custom_tool_call_goes_back(responses: Responses, script: ScriptWriter) -> None:
    script(calls=[ToolCall("run_code", {"input": "print(7 * 6)"})])
    first = responses.create("Print something.", tools=[CUSTOM])
    (call,) = items(first, "custom_tool_call")
    script("It printed 42.")
    output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "forty-two"}
    history = [{"role": "user", "content": "Print something."}, *[i.to_dict() for i in first.output], output]
    second = responses.create(history, tools=[CUSTOM], extra_body=SHOW)
    prompt = prompt_of(second)
    assert prompt.count("print(7 * 6)") == 1
    assert prompt.count("forty-two") == 1
    assert second.output_text.strip() == "It printed 42."


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-060", "VR-043")
@pytest.mark.parametrize("more", [{"tools": [CUSTOM], "tool_choice": "none"}, {}], ids=["none", "no tools"])
def test_call_where_none_may_be_is_text(
    more: dict[str, Any], responses: Responses, script: ScriptWriter
) -> None:
    """With `tool_choice: none` or without tools, text that looks like a call stays text (vllm#40314)."""
    text = '<tool_call>\n{"name": "look", "arguments": {"city": "Paris"}}\n</tool_call>'
    script(Raw(f"<think>\n\n</think>\n\n{text}<|im_end|>"), times=2)
    body, stream = responses.both("Weather in Paris?", **more)
    for response in (body, stream.terminal):
        assert [item.type for item in response.output if item.type != "reasoning"] == ["message"]
        assert response.output_text.strip() == text
