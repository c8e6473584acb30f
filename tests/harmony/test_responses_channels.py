"""Responses on gpt-oss: how a message's channel and recipient decide which item it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.behaviours.tools import CALL, INTERPRETER, RESPONSES_TOOL
from tests.responses_api import Responses, items, shape
from vllm_harness._scripted.book import Raw
from vllm_harness._scripted.meaning import Meaning, Reasoning, Text
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_harmony, pytest.mark.vllm_needs("responses"), pytest.mark.vllm_scripted]

ASK = "Weather in Paris?"
ARGUMENTS = '{"city": "Paris"}'
CALLED = ("function_call", "get_weather", ARGUMENTS)
NEXT = "<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
LOOSE = {**RESPONSES_TOOL, "strict": False}  # a strict tool puts a grammar on every Harmony header
UNSTREAMED = pytest.mark.vllm_known_defect("harmony-message-without-content-is-not-streamed")


@pytest.mark.covers("VR-063", "VR-061")
def test_preamble_is_a_message(responses: Responses, script: ScriptWriter) -> None:
    """Commentary without a recipient is a separate message before the call, opened and closed once."""
    script(Meaning((Reasoning("First say so."), Text("Let me look."), CALL)), times=2)
    body, stream = responses.both(ASK, tools=[RESPONSES_TOOL])
    for response in (body, stream.terminal):
        assert shape(response) == [("reasoning", "First say so."), ("message", "Let me look."), CALLED]
    added = [event.item.type for event in stream.of("output_item.added")]
    assert added == ["reasoning", "message", "function_call"]
    assert [event.text for event in stream.of("output_text.done")] == ["Let me look."]
    assert len(stream.of("content_part.done")) == 2
    assert stream.joined("output_text") == "Let me look."


@pytest.mark.covers("VR-063", "VR-061")
def test_preamble_and_final_are_two_messages(responses: Responses, script: ScriptWriter) -> None:
    script(Meaning((Text("Let me think."), Text("It is sunny."))), times=2)
    body, stream = responses.both(ASK)
    for response in (body, stream.terminal):
        assert shape(response) == [("message", "Let me think."), ("message", "It is sunny.")]
        assert len({item.id for item in response.output}) == 2
        assert response.usage is not None
        assert response.usage.output_tokens_details.reasoning_tokens == 0


@pytest.mark.covers("VR-061")
def test_several_thoughts_are_several_items(responses: Responses, script: ScriptWriter) -> None:
    thought = "<|channel|>analysis<|message|>"
    raw = f"{thought}One.{NEXT}{thought}Two.{NEXT}{FINAL}Yes.<|return|>"
    script(Raw(raw), times=2)
    body, stream = responses.both(ASK)
    for response in (body, stream.terminal):
        assert shape(response) == [("reasoning", "One."), ("reasoning", "Two."), ("message", "Yes.")]


HEADERS = {
    "as the format has it": "<|channel|>commentary to=functions.get_weather <|constrain|>json",
    "no content type": "<|channel|>commentary to=functions.get_weather",
    "content type without its token": "<|channel|>commentary to=functions.get_weather json",
    "recipient before the channel": " to=functions.get_weather<|channel|>commentary <|constrain|>json",
    "bare recipient": "<|channel|>commentary to=get_weather <|constrain|>json",
    "in the analysis channel": "<|channel|>analysis to=functions.get_weather <|constrain|>json",
}


@pytest.mark.covers("VR-061", "VR-043", "VR-046")
@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_headers_of_a_call(header: str, responses: Responses, script: ScriptWriter) -> None:
    """A call of an offered function becomes a function call with each spelling of its header."""
    script(Raw(f"{header}<|message|>{ARGUMENTS}<|call|>"), times=2)
    body, stream = responses.both(ASK, tools=[LOOSE])
    for response in (body, stream.terminal):
        assert shape(response) == [CALLED]
    assert stream.joined("function_call_arguments") == ARGUMENTS
    assert [kind for kind in stream.types if "code_interpreter" in kind or "mcp" in kind] == []


@pytest.mark.covers("VR-061")
def test_dotted_function_name(responses: Responses, script: ScriptWriter) -> None:
    tool = {**LOOSE, "name": "weather.now"}
    raw = f"<|channel|>commentary to=functions.weather.now <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
    script(Raw(raw), times=2)
    body, stream = responses.both(ASK, tools=[tool])
    for response in (body, stream.terminal):
        assert shape(response) == [("function_call", "weather.now", ARGUMENTS)]


@pytest.mark.covers("VR-061", "LS-021")
def test_other_recipients_are_mcp_calls(responses: Responses, script: ScriptWriter) -> None:
    """A message to any other recipient becomes an MCP call; a dot separates server and tool."""
    script(Raw(f"<|channel|>commentary to=files.list<|message|>{ARGUMENTS}<|call|>"))
    response = responses.create(ASK, tools=[LOOSE])
    (call,) = items(response, "mcp_call")
    assert (call.server_label, call.name, call.arguments) == ("files", "list", ARGUMENTS)


@pytest.mark.covers("VR-061")
@pytest.mark.vllm_known_defect("vllm-51616")
def test_a_call_that_nobody_made_is_not_completed(responses: Responses, script: ScriptWriter) -> None:
    """Without a tool server, a call has no output and no error, so it must not be `completed`."""
    script(Raw(f"<|channel|>commentary to=files.list<|message|>{ARGUMENTS}<|call|>"))
    calls = items(responses.create(ASK), "mcp_call")
    assert not [call.status for call in calls if call.output is None and call.error is None]


@pytest.mark.covers("VR-061")
@pytest.mark.vllm_known_defect("mcp-call-is-named-otherwise-in-the-stream")
def test_mcp_call_is_the_same_streamed(responses: Responses, script: ScriptWriter) -> None:
    script(Raw(f"<|channel|>commentary to=files.list<|message|>{ARGUMENTS}<|call|>"), times=2)
    responses.both(ASK, tools=[LOOSE])


@pytest.mark.covers("VR-046", "VR-061")
@pytest.mark.vllm_known_defect("code-interpreter-call-becomes-reasoning")
def test_call_of_python_without_a_tool_server_is_the_same_streamed(
    responses: Responses, script: ScriptWriter
) -> None:
    script(Raw("<|channel|>analysis to=python code<|message|>print(7)<|call|>"), times=2)
    responses.both("What is seven?")


EMPTY = {
    "final": f"{FINAL}<|return|>",
    "thoughts before a text": f"<|channel|>analysis<|message|>{NEXT}{FINAL}Yes.<|return|>",
    "preamble before a text": f"<|channel|>commentary<|message|>{NEXT}{FINAL}Yes.<|return|>",
}


@pytest.mark.covers("VR-063", "VR-066")
@pytest.mark.parametrize("raw", [pytest.param(raw, id=name, marks=UNSTREAMED) for name, raw in EMPTY.items()])
def test_message_without_content_is_streamed(raw: str, responses: Responses, script: ScriptWriter) -> None:
    """A message without content has either both its events and its item, or neither."""
    script(Raw(raw), times=2)
    _, stream = responses.both(ASK, tools=[LOOSE])
    done = [event.item.id for event in stream.of("output_item.done")]
    assert done == [item.id for item in stream.terminal.output]


@pytest.mark.covers("VR-046")
def test_no_code_interpreter_events_beside_a_code_interpreter(
    responses: Responses, script: ScriptWriter
) -> None:
    """A function call stays a function call, even if the request also offers the built-in tool."""
    script(reasoning="I need the weather.", calls=[CALL], times=2)
    body, stream = responses.both(ASK, tools=[INTERPRETER, RESPONSES_TOOL])
    for response in (body, stream.terminal):
        assert shape(response) == [("reasoning", "I need the weather."), CALLED]
    assert [kind for kind in stream.types if "code_interpreter" in kind] == []


@pytest.mark.covers("VR-012", "VT-015")
def test_reasoning_tokens_of_thoughts_are_exact(
    harmony: Any, responses: Responses, script: ScriptWriter
) -> None:
    """The usage in body and stream counts the tokens of the reasoning text, but not of its header."""
    thoughts = "The user asks for a capital, which I know."
    script("Paris.", reasoning=thoughts, times=2)
    body, stream = responses.both("The capital of France?")
    for response in (body, stream.terminal):
        assert response.usage is not None
        assert response.usage.output_tokens_details.reasoning_tokens == len(harmony.encode(thoughts))


@pytest.mark.covers("LS-020", "VR-058")
def test_tool_that_harmony_lacks(responses: Responses) -> None:
    tool = {"type": "file_search", "vector_store_ids": ["vs_1"]}
    answer = responses.post({"model": responses.model, "input": ASK, "tools": [tool]})
    assert answer.status_code == 400, answer.text
    assert "file_search" in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "tools"


@pytest.mark.covers("VR-043", "VR-031")
@pytest.mark.vllm_known_defect("vllm-49493")
def test_tools_in_a_namespace(responses: Responses, script: ScriptWriter) -> None:
    namespace: Any = {
        "type": "namespace",
        "name": "meteo",
        "description": "Weather",
        "tools": [RESPONSES_TOOL],
    }
    script("No need.")
    assert responses.create(ASK, tools=[namespace]).output_text == "No need."
