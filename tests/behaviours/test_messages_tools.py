"""Tool calls over Anthropic Messages: each tool_choice, results, truncated calls, changing tools.

The scripts leave out the blank lines before a call, which a stream would contain as text (vllm#36445).
"""

from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI

from tests.behaviours.stop_strings import AND_ON
from tests.behaviours.tools import CALL, CHAT_TOOL, WEATHER
from tests.messages_api import TOOL, Messages, kinds, text_of
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import When
from vllm_harness._scripted.meaning import Meaning, Text, ToolCall
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_needs("messages", "tools")

FREE = {**TOOL, "strict": False}
NOW = {"name": "now", "description": "The time", "input_schema": {"type": "object", "properties": {}}}
ROME = ToolCall("get_weather", {"city": "Rome"})
STOPPED = f"There STOP it goes{AND_ON}"
PENDING_CALL: list[Any] = [
    {"role": "user", "content": WEATHER},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I shall look."},
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}},
        ],
    },
]


def result(content: Any = "sunny, 21 degrees", **more: Any) -> dict[str, Any]:
    """Returns a tool result for the call in PENDING_CALL."""
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}


def answered(*blocks: dict[str, Any]) -> list[Any]:
    """Returns the conversation with these blocks as the user's next turn."""
    return [*PENDING_CALL, {"role": "user", "content": list(blocks)}]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-003", "VA-004", "VA-024", "LS-041")
@pytest.mark.parametrize("choice", [{"type": "auto"}, None], ids=["auto", "absent"])
def test_call(choice: Any, messages: Messages, script: ScriptWriter) -> None:
    script(calls=[CALL], constrained=True, times=2)
    more = {} if choice is None else {"tool_choice": choice}
    body, stream = messages.both(WEATHER, tools=[FREE, NOW], **more)
    assert kinds(body) == ["tool_use"]
    call = body.content[-1]
    assert call.type == "tool_use"
    assert (call.name, call.input) == (CALL.name, CALL.arguments)
    assert call.id
    assert body.stop_reason == "tool_use"
    assert stream.of("content_block_start")[-1]["content_block"]["input"] == {}


@pytest.mark.covers("VA-003", "VA-004", "LS-041")
@pytest.mark.parametrize(
    "choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}], ids=["any", "tool"]
)
def test_forced_call(choice: Any, messages: Messages, script: ScriptWriter) -> None:
    script(calls=[CALL], constrained=True, times=2)
    tool = {**TOOL, "strict": True}
    body, _ = messages.both(WEATHER, tools=[tool], tool_choice=choice)
    calls = [block for block in body.content if block.type == "tool_use"]
    assert calls
    assert body.stop_reason == "tool_use"
    assert all(call.name == "get_weather" and set(call.input) == {"city"} for call in calls)
    assert not text_of(body)
    if script.exact:
        assert [call.input for call in calls] == [CALL.arguments]


@pytest.mark.covers("LS-041")
def test_no_call_where_none_is_allowed(messages: Messages, script: ScriptWriter) -> None:
    script("No tool will help.", times=2)
    body, _ = messages.both(WEATHER, tools=[FREE], tool_choice={"type": "none"}, max_tokens=30)
    assert "tool_use" not in kinds(body)
    assert body.stop_reason in ("end_turn", "max_tokens")


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.covers("LS-041")
def test_call_where_none_is_allowed_is_none(messages: Messages, script: ScriptWriter) -> None:
    """If no call is allowed, a call that the model makes anyway is not returned as a call."""
    script(calls=[CALL], times=2)
    body, _ = messages.both(WEATHER, tools=[FREE], tool_choice={"type": "none"})
    assert "tool_use" not in kinds(body)
    assert body.stop_reason == "end_turn"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("parallel_tools")
@pytest.mark.covers("VA-003", "VA-024")
def test_two_calls(messages: Messages, script: ScriptWriter) -> None:
    script(calls=[CALL, ROME], constrained=True, times=2)
    body, _ = messages.both("Weather in Paris and Rome?", tools=[FREE])
    calls = [block for block in body.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [CALL.arguments, ROME.arguments]
    assert calls[0].id != calls[1].id


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("gpt-oss", "qwen3")
@pytest.mark.covers("VA-003", "VA-024")
def test_text_then_call(messages: Messages, script: ScriptWriter) -> None:
    script("I shall look.", calls=[CALL], times=2)
    body, _ = messages.both(WEATHER, tools=[FREE])
    assert kinds(body) == ["text", "tool_use"]
    assert text_of(body) == "I shall look."


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VA-013")
def test_text_around_a_call(messages: Messages, script: ScriptWriter) -> None:
    script(Meaning((Text("I shall look."), CALL, Text("There it goes."))), times=2)
    messages.both(WEATHER, tools=[FREE])


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VA-013")
def test_text_after_a_call_is_not_lost(messages: Messages, script: ScriptWriter) -> None:
    script(Meaning((CALL, Text("There it goes."))), times=2)
    stream = messages.stream(WEATHER, tools=[FREE]).message
    body = messages.create(WEATHER, tools=[FREE])
    assert stream["stop_reason"] == body.stop_reason == "tool_use"
    assert [block["input"] for block in stream["content"] if block["type"] == "tool_use"] == [CALL.arguments]
    text = "".join(block["text"] for block in stream["content"] if block["type"] == "text")
    assert text.strip() == text_of(body)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-003", "VA-024")
def test_call_without_arguments(messages: Messages, script: ScriptWriter) -> None:
    script(calls=[ToolCall("now", {})], constrained=True, times=2)
    body, _ = messages.both("What time is it?", tools=[NOW])
    assert [block.input for block in body.content if block.type == "tool_use"] == [{}]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-019", "vllm-48273")
@pytest.mark.vllm_known_defect("vllm-48273", models=["gpt-oss"])
def test_limit_within_a_call(messages: Messages, script: ScriptWriter) -> None:
    """If the limit truncates a call, stop_reason is max_tokens, so that the client does not run the call."""
    take = script(calls=[CALL], expect="truncated")
    assert take is not None
    answer = messages.post(messages.request(WEATHER, {"tools": [FREE], "max_tokens": len(take.takes[0]) - 4}))
    assert answer.status_code == 200, answer.text
    assert answer.json()["stop_reason"] == "max_tokens"


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-019", "VA-024")
def test_limit_within_a_streamed_call(messages: Messages, script: ScriptWriter) -> None:
    take = script(calls=[CALL], expect="truncated")
    assert take is not None
    stream = messages.stream(WEATHER, tools=[FREE], max_tokens=len(take.takes[0]) - 4)
    assert stream.of("message_delta")[0]["delta"]["stop_reason"] == "max_tokens"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VA-019")
def test_stop_sequence_after_a_call(messages: Messages, script: ScriptWriter) -> None:
    """A complete call should be run by the client, even if a stop sequence ended the text after it."""
    script(Meaning((CALL, Text(STOPPED))), expect="truncated")
    body = messages.create(WEATHER, tools=[FREE], stop_sequences=["STOP"])
    assert body.stop_reason == "tool_use"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VA-019")
@pytest.mark.vllm_known_defect("stop-sequence-after-streamed-call")
@pytest.mark.vllm_known_defect("stop-string-shifts-what-hermes-streams")
def test_stop_sequence_after_a_streamed_call(messages: Messages, script: ScriptWriter) -> None:
    """The stop reason must not depend on chunks; it is right if one chunk has both call and stop sequence."""
    for delivery in ("tokens_1", "tokens_4", "all"):
        script(Meaning((CALL, Text(STOPPED))), expect="truncated", delivery=delivery)
        stream = messages.stream(WEATHER, tools=[FREE], stop_sequences=["STOP"])
        assert stream.of("message_delta")[0]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-019", "VA-020", "vllm-48273")
@pytest.mark.vllm_known_defect("vllm-48273", models=["gpt-oss"])
def test_bad_arguments_are_no_error_of_the_client(messages: Messages, script: ScriptWriter) -> None:
    script(calls=[ToolCall("get_weather", '{"city": "Par')])
    answer = messages.post(messages.request(WEATHER, {"tools": [FREE]}))
    assert answer.status_code == 200, answer.text
    messages.check("check_body")(answer.json(), api="messages")


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-008", "LS-041")
@pytest.mark.parametrize(
    "content",
    ["sunny, 21 degrees", [{"type": "text", "text": "sunny, 21 degrees"}]],
    ids=["text", "block"],
)
def test_result_reaches_the_model(
    content: Any, messages: Messages, script: ScriptWriter, openai_client: OpenAI
) -> None:
    """The prompt is the same as over Chat Completions; a question may accompany the tool result."""
    script("It is sunny.", times=3, when=When(tool_output="sunny"))
    body, _ = messages.both(answered(result(content)), tools=[FREE])
    assert text_of(body) == "It is sunny."
    call = {
        "id": "toolu_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
    }
    function = {**CHAT_TOOL["function"], "strict": False}
    chat = openai_client.chat.completions.create(
        model=messages.model,
        messages=[
            {"role": "user", "content": WEATHER},
            {"role": "assistant", "content": "I shall look.", "tool_calls": [call]},  # type: ignore[list-item]
            {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny, 21 degrees"},
        ],
        tools=[{"type": "function", "function": function}],  # type: ignore[list-item]
    )
    assert chat.usage is not None
    assert body.usage.input_tokens == chat.usage.prompt_tokens


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-008", "LS-041")
@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "tool_result", "tool_use_id": "toolu_1"}],
        [result("", is_error=True)],
        [result([])],
        [result([{"type": "text", "text": "sunny"}, {"type": "text", "text": "warm"}])],
        [result(), {"type": "text", "text": "And tomorrow?"}],
    ],
    ids=["none", "error", "empty", "blocks", "with a question"],
)
def test_results_are_taken(blocks: list[Any], messages: Messages, script: ScriptWriter) -> None:
    script("It is sunny.")
    message = messages.create(answered(*blocks), tools=[FREE])
    assert text_of(message) == "It is sunny."
    assert message.usage.input_tokens == messages.count(answered(*blocks), tools=[FREE])


@pytest.mark.vllm_scripted
@pytest.mark.covers("LS-041")
def test_round_trip(vllm_server: VllmServer, messages: Messages, script: ScriptWriter) -> None:
    """The server's own answer is accepted unchanged, with its reasoning if the model has any."""
    thinks = "reasoning" in vllm_server.entry.capabilities
    script(calls=[CALL], **({"reasoning": "I need the weather."} if thinks else {}))
    first = messages.create(WEATHER, tools=[FREE])
    call = first.content[-1]
    assert call.type == "tool_use"
    script("It is 21 degrees and sunny in Paris.", when=When(tool_output="21 degrees", turn=1))
    blocks = [block.model_dump(exclude_unset=True) for block in first.content]
    conversation = [
        {"role": "user", "content": WEATHER},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [{**result(), "tool_use_id": call.id}]},
    ]
    second = messages.create(conversation, tools=[FREE])
    assert second.stop_reason == "end_turn"
    assert "21" in text_of(second)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-022")
def test_tools_come_and_go_with_system_messages(messages: Messages, script: ScriptWriter) -> None:
    """System messages add and remove tools; the prompt has the tools that are available at the end."""
    script("Fine.", times=4)

    def changed(*blocks: Any) -> list[Any]:
        return [{"role": "user", "content": "Hi"}, {"role": "system", "content": list(blocks)}]

    def input_tokens(conversation: Any, *tools: Any) -> int:
        return messages.create(conversation, tools=list(tools)).usage.input_tokens

    reference = {"type": "tool_reference", "name": "now"}
    definition = {"type": "tool_definition", "definition": NOW}
    both = messages.count("Hi", tools=[TOOL, NOW])
    assert input_tokens(changed({"type": "tool_addition", "tool": definition}), TOOL) == both
    deferred = {**NOW, "defer_loading": True}
    assert input_tokens(changed({"type": "tool_addition", "tool": reference}), TOOL, deferred) == both
    removal = {"type": "tool_removal", "tool": reference}
    assert input_tokens(changed(removal), TOOL, NOW) == messages.count("Hi", tools=[TOOL])
    again = changed(removal, {"type": "tool_addition", "tool": reference})
    assert input_tokens(again, TOOL, NOW) == both


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-022")
def test_tool_that_is_defined_anew(messages: Messages) -> None:
    """If a tool is defined twice, the later definition takes effect."""
    anew = {**NOW, "description": "The time of day in a zone, to the second"}
    addition = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": anew}}
    turns = [{"role": "user", "content": "Hi"}, {"role": "system", "content": [addition]}]
    before, after = (messages.count("Hi", tools=[TOOL, tool]) for tool in (NOW, anew))
    assert before < after == messages.count(turns, tools=[TOOL, NOW])
