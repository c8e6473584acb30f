"""Behaviour specific to models other than gpt-oss: how items become a prompt, and tool calls."""

from __future__ import annotations

from typing import Any

import pytest

from tests.defects.wire import (
    SHOW_PROMPT,
    TOOL,
    Json,
    Wire,
    items,
    prompt_of,
    refused,
    terminal,
    user,
)
from vllm_harness._scripted.book import Raw
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._testing.checks import StreamCheck
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_standard,
    pytest.mark.vllm_needs("responses", "tools"),
    pytest.mark.vllm_model("qwen3"),
]

CALL = ToolCall("get_weather", {"city": "Paris"})
CUSTOM = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Applies a patch",
    "format": {"type": "text"},
}


@pytest.mark.covers("vllm-43244")
@pytest.mark.vllm_known_defect("vllm-43244")
def test_previous_call_is_in_the_prompt(wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference, previous_response_id: all items of the previous response are input."""
    script(calls=[CALL])
    script("Sunny.")
    first = wire.respond("Weather?", tools=[TOOL])
    (call,) = items(first, "function_call")
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "21 degrees"}
    second = wire.respond([output], tools=[TOOL], previous_response_id=first["id"], **SHOW_PROMPT)
    after_question = prompt_of(second).rpartition("Weather?")[2]
    assert "21 degrees" in after_question
    assert "Paris" in after_question, "the output of a call that is not there"


@pytest.mark.covers("vllm-37697")
def test_old_instructions_are_dropped(wire: Wire, script: ScriptWriter) -> None:
    """This defect no longer reproduces. Source: API reference, `instructions`."""
    script("One.")
    script("Two.")
    first = wire.respond("First?", instructions="Rhyme always.")
    second = wire.respond("Second?", previous_response_id=first["id"], **SHOW_PROMPT)
    assert "Rhyme always." not in prompt_of(second)


@pytest.mark.covers("vllm-37167")
def test_message_and_call_are_one_turn(wire: Wire, script: ScriptWriter) -> None:
    """This no longer happens: they became two assistant turns in the prompt."""
    script("Sunny.")
    message = {"type": "message", "role": "assistant", "content": "I shall look."}
    call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Paris"}'}
    output = {"type": "function_call_output", "call_id": "c1", "output": "21 degrees"}
    response = wire.respond([user("Weather?"), message, call, output], tools=[TOOL], **SHOW_PROMPT)
    assert prompt_of(response).count("<|im_start|>assistant") == 2


@pytest.mark.covers("CO-16")
@pytest.mark.vllm_known_defect("only-the-first-part-of-a-replayed-item-is-used")
@pytest.mark.parametrize("kind", ["message", "easy message", "reasoning"])
def test_all_parts_of_a_replayed_item_are_used(kind: str, wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI: `content` is a list, all of whose parts belong in the prompt."""

    def parts(part_type: str) -> list[Json]:
        more = {"annotations": []} if part_type == "output_text" else {}
        return [{"type": part_type, "text": text, **more} for text in ("First half.", "Second half.")]

    assistant_items: dict[str, Json] = {
        "message": {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": parts("output_text"),
        },
        "easy message": {"role": "assistant", "content": parts("input_text")},
        "reasoning": {"type": "reasoning", "id": "rs_1", "summary": [], "content": parts("reasoning_text")},
    }
    call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Paris"}'}
    output = {"type": "function_call_output", "call_id": "c1", "output": "21 degrees"}
    script("Sunny.")
    response = wire.respond(
        [user("Weather?"), assistant_items[kind], call, output], tools=[TOOL], **SHOW_PROMPT
    )
    prompt = prompt_of(response)
    assert "First half." in prompt
    assert "Second half." in prompt


@pytest.mark.covers("vllm-36445")
@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(False, id="body"),
        pytest.param(
            True,
            id="stream",
            marks=pytest.mark.vllm_known_defect("blank-lines-before-a-call-are-streamed"),
        ),
    ],
)
def test_no_message_of_blanks_before_a_call(stream: bool, wire: Wire, script: ScriptWriter) -> None:
    """The blank lines between reasoning and a call belong to the format and must not become a message."""
    script(reasoning="Weather, then.", calls=[CALL])
    request: Json = {"tools": [TOOL]}
    response = terminal(wire.stream("Weather?", **request)) if stream else wire.respond("Weather?", **request)
    assert [item["type"] for item in response["output"]] == ["reasoning", "function_call"]


@pytest.mark.covers("vllm-42475")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_call_into_a_namespace(stream: bool, wire: Wire, script: ScriptWriter) -> None:
    """This no longer happens: namespaces were refused. Source: OpenAPI, NamespaceTool, FunctionToolCall."""
    namespace = {"type": "namespace", "name": "sky", "description": "Weather", "tools": [TOOL]}
    script(calls=[ToolCall("sky__get_weather", {"city": "Paris"})])
    request: Json = {"tools": [namespace]}
    response = terminal(wire.stream("Weather?", **request)) if stream else wire.respond("Weather?", **request)
    (call,) = items(response, "function_call")
    assert (call["namespace"], call["name"]) == ("sky", "get_weather")


@pytest.mark.covers("vllm-56285")
def test_custom_tool_call(wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI, CustomToolCall; Codex's apply_patch is such a tool."""
    script(calls=[ToolCall("apply_patch", {"input": "*** Begin Patch\n+ü\n*** End Patch"})])
    (call,) = items(wire.respond("Patch", tools=[CUSTOM]), "custom_tool_call")
    assert call["name"] == "apply_patch"
    assert call["input"] == "*** Begin Patch\n+ü\n*** End Patch"


@pytest.mark.covers("vllm-56285")
def test_custom_tool_call_streamed(wire: Wire, script: ScriptWriter, check_stream: StreamCheck) -> None:
    """The input is the same in the deltas, the done event and the item; event and item have the same id."""
    script(calls=[ToolCall("apply_patch", {"input": "*** Begin Patch\n+ü\n*** End Patch"})])
    events = wire.stream("Patch", tools=[CUSTOM])
    check_stream(events)

    def of(kind: str) -> list[Json]:
        return [event for event in events if event["type"] == f"response.custom_tool_call_input.{kind}"]

    (done,) = of("done")
    (item,) = items(terminal(events), "custom_tool_call")
    assert "".join(event["delta"] for event in of("delta")) == done["input"] == item["input"]
    assert done["item_id"] == item["id"]


@pytest.mark.covers("vllm-56285")
def test_arguments_are_done_before_their_item(
    wire: Wire, script: ScriptWriter, check_stream: StreamCheck
) -> None:
    """A done event ends the arguments of each call, as Codex requires, after reasoning and text."""
    script("On it.", reasoning="Two of them.", calls=[CALL, ToolCall("get_weather", {"city": "Rome"})])
    events = wire.stream("Weather?", tools=[TOOL, CUSTOM], parallel_tool_calls=True)
    check_stream(events)
    done = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    calls = items(terminal(events), "function_call")
    assert [event["arguments"] for event in done] == [call["arguments"] for call in calls]
    assert [event["item_id"] for event in done] == [call["id"] for call in calls]


@pytest.mark.covers("vllm-28173")
@pytest.mark.vllm_known_defect("vllm-28173")
def test_mcp_server_that_is_not_there_is_told(wire: Wire, script: ScriptWriter) -> None:
    """Source: MCP guide: an unreachable MCP server is an error, which an answer must not hide."""
    script("I have no tools.")
    mcp = {"type": "mcp", "server_label": "sky", "server_url": "http://127.0.0.1:9/mcp"}
    answer = wire.post("responses", input="Weather?", tools=[{**mcp, "require_approval": "never"}])
    if answer.status_code == 200:
        assert items(answer.json(), "mcp_list_tools")
    else:
        error = refused(answer)
        assert (answer.status_code, error["param"]) == (400, "tools")
        assert "mcp" in error["message"].lower()


@pytest.mark.covers("vllm-47916", "vllm-44608")
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "name": "get_weather"}], ids=["required", "named"]
)
def test_forced_call_has_one_call_id(
    choice: Any, wire: Wire, script: ScriptWriter, check_stream: StreamCheck
) -> None:
    """This no longer happens: output_item.done and response.completed had different ids for one call."""
    script(calls=[CALL], constrained=True)
    events = wire.stream("Weather?", tools=[TOOL], tool_choice=choice)
    check_stream(events)
    (done,) = (
        event["item"]
        for event in events
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call"
    )
    (call,) = items(terminal(events), "function_call")
    assert (done["id"], done["call_id"]) == (call["id"], call["call_id"])


@pytest.mark.covers("vllm-55284", "vllm-36445")
@pytest.mark.parametrize(
    "raw",
    [
        'Look: <tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call> Done.<|im_end|>',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {"on": true}}\n</tool_call>',
    ],
    ids=["text around", "plain", "no arguments", "boolean last"],
)
def test_call_streams_as_its_body(
    raw: str, wire: Wire, script: ScriptWriter, check_stream: StreamCheck
) -> None:
    """With one token per event, the calls in stream and body are identical, byte for byte."""
    script(Raw(f"<think>\nHm.\n</think>\n\n{raw}"), times=2)
    body = wire.respond("Weather?", tools=[TOOL])
    events = wire.stream("Weather?", tools=[TOOL])
    check_stream(events)

    def calls(response: Json) -> list[tuple[str, str]]:
        return [(call["name"], call["arguments"]) for call in items(response, "function_call")]

    assert len(calls(body)) == 1
    assert calls(terminal(events)) == calls(body)
