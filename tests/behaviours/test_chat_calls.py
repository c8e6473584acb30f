"""Tool calls over Chat Completions: each tool_choice, streamed and not, and unusual arguments."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

from tests.behaviours.stop_strings import AND_ON
from tests.case_files import cases
from tests.chat_api import (
    ANYTHING,
    ASK,
    CITY,
    CUTS,
    FORECAST,
    FREE,
    HISTORY,
    NOW,
    PARIS,
    ROME,
    WEATHER,
    Answers,
    Chat,
    named,
)
from vllm_harness._scripted.book import Raw
from vllm_harness._scripted.dialects import render
from vllm_harness._scripted.meaning import Meaning, Text, ToolCall
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter


def call_ids(answers: Answers) -> list[str]:
    """Returns the ids of all calls, in the body and in the stream."""
    in_body = [call.id for call in answers.body.choices[0].message.tool_calls or []]
    in_stream = [
        call.id
        for chunk in answers.chunks
        for choice in chunk.choices
        for call in choice.delta.tool_calls or []
        if call.id
    ]
    assert len(in_stream) == len(in_body)
    return in_body + in_stream


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-001", "VT-008", "VT-011", "VT-014", "VC-015", "VC-020")
@pytest.mark.parametrize("explicit", [True, False])
def test_auto_call(explicit: bool, chat: Chat, script: ScriptWriter) -> None:
    script(calls=[PARIS], times=2, constrained=True)
    choice = {"tool_choice": "auto"} if explicit else {}
    answers = chat.both(tools=[FREE, FORECAST], **choice)
    assert answers.output.calls == (("get_weather", PARIS.arguments_json),)
    assert answers.output.finish == "tool_calls"
    assert not answers.output.content
    assert all(len(identifier) >= 9 for identifier in call_ids(answers))


@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-001", "VT-008", "VT-010", "VC-015")
def test_required_call(chat: Chat, script: ScriptWriter) -> None:
    script(calls=[PARIS], constrained=not chat.rust, times=2)
    answers = chat.both(tools=[WEATHER], tool_choice="required", max_tokens=100)
    assert answers.output.names == ["get_weather"] * len(answers.output.calls)
    assert answers.output.calls
    assert all(arguments["city"] in CITY["enum"] for arguments in answers.output.arguments)
    assert answers.output.finish == "tool_calls"
    assert not answers.output.content
    if script.exact:
        assert answers.output.calls == (("get_weather", PARIS.arguments_json),)


@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-008", "VC-015", "VC-017")
def test_named_call(chat: Chat, script: ScriptWriter) -> None:
    """A forced function finishes with `stop`, as on OpenAI, and its JSON does not appear as content."""
    script(calls=[PARIS], constrained=not chat.rust, times=2)
    answers = chat.both(tools=[NOW, WEATHER], tool_choice=named("get_weather"), max_tokens=100)
    assert answers.output.names == ["get_weather"]
    assert answers.output.arguments[0]["city"] in CITY["enum"]
    assert not answers.output.content
    assert answers.output.finish == "stop"
    if script.exact:
        assert answers.output.calls == (("get_weather", PARIS.arguments_json),)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-008", "VC-015")
@pytest.mark.parametrize(
    "choice", ["auto", "required", named("get_weather")], ids=["auto", "required", "named"]
)
def test_function_of_a_call_is_name_and_arguments(choice: Any, chat: Chat, script: ScriptWriter) -> None:
    """A call's function has only a name and arguments, and no other fields, not even null ones."""
    script(calls=[PARIS], constrained=not chat.rust, times=2)
    answers = chat.both(tools=[WEATHER], tool_choice=choice)
    calls = answers.body.choices[0].message.tool_calls or []
    assert [set(call.to_dict()["function"]) for call in calls] == [{"name", "arguments"}]  # type: ignore[call-overload]
    pieces = [
        call.function.to_dict()
        for chunk in answers.chunks
        for each in chunk.choices
        for call in each.delta.tool_calls or []
        if call.function
    ]
    assert set().union(*pieces) == {"name", "arguments"}


@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-003", "VT-008", "VC-043")
def test_no_call_when_none_is_allowed(chat: Chat, script: ScriptWriter) -> None:
    script("No tool will help here.", times=2)
    answers = chat.both(tools=[WEATHER], tool_choice="none", max_tokens=20)
    assert not answers.output.calls
    assert answers.output.finish in ("stop", "length")
    expect_content(answers.output.content.strip(), "some text, not nothing")
    if script.exact:
        assert answers.output.content.strip() == "No tool will help here."
        assert answers.output.finish == "stop"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-022")
@pytest.mark.parametrize("more", [{}, {"strict": None}], ids=["absent", "null"])
def test_strict_that_is_not_set_stays_out_of_the_prompt(
    more: dict[str, Any], chat: Chat, script: ScriptWriter
) -> None:
    script("Rain.")
    tool = {"type": "function", "function": {**FREE["function"], **more}}
    prompt = chat.prompt(ASK, tools=[tool])
    assert "get_weather" in prompt
    assert "strict" not in prompt


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-008", "VC-043")
@pytest.mark.parametrize("request_", [{"tools": [FREE], "tool_choice": "none"}, {}], ids=["none", "no tools"])
@pytest.mark.vllm_known_defect("harmony-drops-calls-not-allowed")
def test_call_that_is_not_allowed_is_no_call(
    request_: dict[str, Any], chat: Chat, script: ScriptWriter
) -> None:
    """If the model makes a call that is not allowed, neither body nor stream passes it to the client."""
    script(calls=[PARIS], times=2, constrained=True)
    answers = chat.both(**request_)
    assert not answers.streamed.calls
    assert not answers.output.calls
    assert answers.output.finish == answers.streamed.finish == "stop"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-002", "VT-006", "VC-020", "VC-022")
@pytest.mark.parametrize(
    "content",
    [
        "rain, 98 percent humid",
        [{"type": "text", "text": "rain, 98 percent humid"}],
        [{"type": "text", "text": "rain, "}, {"type": "text", "text": "98 percent humid"}],
    ],
    ids=["text", "part", "parts"],
)
def test_tool_output_reaches_the_model(content: Any, chat: Chat, script: ScriptWriter) -> None:
    """The prompt contains the call and its whole output, and the answer is text."""
    script("It rains: 98 percent humid.", times=3)
    messages = [*HISTORY[:-1], {**HISTORY[-1], "content": content}]
    answers = chat.both(messages, tools=[FREE])
    assert answers.output.content.strip() == "It rains: 98 percent humid."
    assert not answers.output.calls
    prompt = chat.prompt(messages, tools=[FREE])
    assert "98 percent humid" in prompt
    assert prompt.index("rain, ") < prompt.index("98 percent humid")
    assert re.search(r'\{\s*"city"\s*:\s*"Paris"\s*\}', prompt)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-016")
@pytest.mark.parametrize("arguments", ["{}", ""], ids=["object", "empty"])
def test_call_without_arguments_in_the_history(arguments: str, chat: Chat, script: ScriptWriter) -> None:
    script("Noon.", times=2)
    call = {"id": "call_now_1", "type": "function", "function": {"name": "now", "arguments": arguments}}
    messages = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_now_1", "content": "12:00"},
    ]
    answers = chat.both(messages, tools=[NOW])
    assert answers.output.content.strip() == "Noon."


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-010", "VT-014", "VC-016")
@pytest.mark.vllm_known_defect("llama3-json-streams-no-empty-arguments")
def test_call_without_arguments(chat: Chat, script: ScriptWriter) -> None:
    script(calls=[ToolCall("now", {})], times=2, constrained=True)
    answers = chat.both(tools=[NOW, FREE])
    assert answers.output.calls == (("now", "{}"),)
    assert answers.output.finish == "tool_calls"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.parametrize("case", cases("chat_arguments"))
def test_arguments_arrive_whole(case: dict[str, Any], chat: Chat, script: ScriptWriter) -> None:
    """The arguments in body and stream are the same JSON value as in the script."""
    script(calls=[ToolCall("store", case["arguments"])], times=2, constrained=True)
    answers = Answers(chat.body(tools=[ANYTHING]), chat.stream(tools=[ANYTHING]))
    for output in (answers.output, answers.streamed):
        assert output.names == ["store"]
        assert output.arguments == [case["arguments"]]
        assert output.finish == "tool_calls"
    assert replace(answers.streamed, calls=()) == replace(answers.output, calls=())


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-001", "CO-14")
@pytest.mark.parametrize("case", cases("chat_argument_bytes"))
def test_arguments_arrive_as_written(case: dict[str, Any], chat: Chat, script: ScriptWriter) -> None:
    """The arguments in body and stream are byte for byte as the model wrote them."""
    script(calls=[ToolCall("store", case["text"])], times=2, constrained=True)
    streamed = chat.stream(tools=[ANYTHING])
    deltas = [
        call.function.arguments or ""
        for chunk in streamed
        for choice in chunk.choices
        for call in choice.delta.tool_calls or []
        if call.function
    ]
    body = chat.body(tools=[ANYTHING])
    calls = body.choices[0].message.tool_calls or []
    texts = [call.function.arguments for call in calls if call.type == "function"]
    assert ["".join(deltas)] == texts == [case["text"]]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-010", "VT-014")
def test_function_whose_name_begins_with_another(chat: Chat, script: ScriptWriter) -> None:
    script(calls=[ToolCall("get_weather_forecast", {"city": "Rome", "days": 3})], times=2, constrained=True)
    answers = chat.both(tools=[FREE, FORECAST])
    assert answers.output.names == ["get_weather_forecast"]
    assert answers.output.arguments == [{"city": "Rome", "days": 3}]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-008", "VT-013")
def test_text_without_call_on_auto(chat: Chat, script: ScriptWriter) -> None:
    script("I need no tool for that.", times=2)
    answers = chat.both(tools=[FREE], tool_choice="auto")
    assert answers.output.content.strip() == "I need no tool for that."
    assert answers.output.finish == "stop"
    assert not answers.output.calls


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.vllm_model("gpt-oss", "qwen3")
@pytest.mark.covers("VT-014", "VT-015")
def test_text_before_a_call(chat: Chat, script: ScriptWriter) -> None:
    script(Meaning((Text("I shall look."), PARIS)), times=2)
    answers = chat.both(tools=[FREE])
    assert answers.output.content.strip() == "I shall look."
    assert answers.output.arguments == [PARIS.arguments]
    assert answers.output.finish == "tool_calls"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "reasoning")
@pytest.mark.covers("VT-013", "VC-015", "VT-016")
@pytest.mark.vllm_known_defect("blank-lines-before-a-call-are-streamed", models=["qwen3"])
def test_reasoning_then_call(chat: Chat, script: ScriptWriter) -> None:
    """Whitespace between reasoning and call does not become content."""
    script(reasoning="Which tool? The weather.", calls=[PARIS], times=2)
    answers = chat.both(tools=[FREE])
    assert answers.output.reasoning.strip() == "Which tool? The weather."
    assert answers.output.content == ""
    assert answers.output.arguments == [PARIS.arguments]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "reasoning")
@pytest.mark.covers("VT-013", "VC-015", "VT-016")
def test_reasoning_then_text_then_call(chat: Chat, script: ScriptWriter) -> None:
    script("I shall look.", reasoning="Which tool? The weather.", calls=[PARIS], times=2)
    answers = chat.both(tools=[FREE])
    assert answers.output.reasoning.strip() == "Which tool? The weather."
    assert answers.output.content.strip() == "I shall look."
    assert answers.output.arguments == [PARIS.arguments]
    assert answers.output.finish == "tool_calls"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "parallel_tools")
@pytest.mark.covers("VT-005", "VT-010", "VT-014")
@pytest.mark.parametrize("count", [2, 8])
def test_parallel_calls(count: int, chat: Chat, script: ScriptWriter) -> None:
    """The calls keep their order and have different ids; the same function may be called several times."""
    calls = [ToolCall("get_weather", {"city": f"City {number}"}) for number in range(count - 1)]
    script(calls=[*calls, ToolCall("now", {})], times=2, constrained=True)
    answers = chat.both(tools=[FREE, NOW])
    assert answers.output.names == ["get_weather"] * (count - 1) + ["now"]
    assert answers.output.arguments == [*(call.arguments for call in calls), {}]
    assert answers.output.finish == "tool_calls"
    assert len(set(call_ids(answers))) == 2 * count


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "parallel_tools")
@pytest.mark.covers("VT-006")
def test_outputs_of_parallel_calls(chat: Chat, script: ScriptWriter) -> None:
    """The outputs of two calls are sent in reverse order; the prompt contains both."""
    script("98 there, 78 here.", times=3)
    calls = [
        {
            "id": f"call_{city}_123",
            "type": "function",
            "function": {"name": "get_weather", "arguments": json.dumps({"city": city})},
        }
        for city in ("Paris", "Rome")
    ]
    messages = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_Rome_123", "content": "Rome has 78 degrees"},
        {"role": "tool", "tool_call_id": "call_Paris_123", "content": "Paris has 98 degrees"},
    ]
    answers = chat.both(messages, tools=[FREE])
    assert answers.output.content.strip() == "98 there, 78 here."
    prompt = chat.prompt(messages, tools=[FREE])
    assert prompt.count("Rome has 78 degrees") == prompt.count("Paris has 98 degrees") == 1


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-007", "VT-010")
def test_one_call_where_parallel_calls_are_forbidden(chat: Chat, script: ScriptWriter) -> None:
    script(calls=[PARIS], constrained=not chat.rust, times=2)
    answers = chat.both(tools=[FREE], parallel_tool_calls=False)
    assert answers.output.arguments == [PARIS.arguments]
    assert answers.output.finish == "tool_calls"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "parallel_tools")
@pytest.mark.covers("VT-010")
def test_several_calls_where_one_is_required(chat: Chat, script: ScriptWriter) -> None:
    """The grammar for hermes does not allow the newline between two calls, so the script omits it."""
    pair = render(chat.server.entry.dialect or "", Meaning((PARIS, ROME)), constrained=not chat.rust)
    script(Raw(pair if chat.rust else pair.replace("</tool_call>\n", "</tool_call>")), times=2)
    answers = chat.both(tools=[WEATHER], tool_choice="required")
    assert answers.output.arguments == [PARIS.arguments, ROME.arguments]
    assert answers.output.finish == "tool_calls"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "structured_output")
@pytest.mark.covers("VT-004")
def test_required_call_beside_a_response_format(chat: Chat, script: ScriptWriter) -> None:
    """A forced call takes precedence over json_object (vllm#32006: the request crashed the engine)."""
    script(calls=[PARIS], constrained=not chat.rust, times=2)
    answers = chat.both(
        tools=[WEATHER], tool_choice="required", response_format={"type": "json_object"}, max_tokens=200
    )
    assert answers.output.arguments == [PARIS.arguments]
    assert answers.output.finish == "tool_calls"


def kept(message: ChatCompletionMessage, form: str) -> Any:
    """Returns an answer as clients store it: the SDK's object, all its fields, or only the fields sent."""
    return {
        "object": message,
        "dump": message.model_dump(),
        "sent": message.model_dump(exclude_unset=True),
    }[form]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-024", "VC-032")
def test_every_token_of_a_call_is_accounted_for(chat: Chat, script: ScriptWriter) -> None:
    """A call's logprobs and token ids are the same in stream and body, including those of the markup."""
    script(calls=[PARIS], times=2, constrained=True)
    answers = chat.both(tools=[FREE], logprobs=True, return_token_ids=True)
    logprobs = answers.body.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    parts = [
        entry.token
        for chunk in answers.chunks
        for choice in chunk.choices
        for entry in ((choice.logprobs.content if choice.logprobs else None) or [])
    ]
    assert parts == [entry.token for entry in logprobs.content]
    ids = [
        token
        for chunk in answers.chunks
        for choice in chunk.choices
        for token in getattr(choice, "token_ids", None) or []
    ]
    assert ids == answers.body.choices[0].token_ids  # type: ignore[attr-defined]
    assert answers.body.usage is not None
    assert len(ids) == len(parts) == answers.body.usage.completion_tokens


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-010", "VT-015")
@pytest.mark.parametrize("tokens", [2, 3, 5, 8, 1000])
def test_calls_survive_any_chunk_length(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    """No part of a call is lost if chunks have several tokens, as in vllm#27641, #19056 and #60351."""
    call = ToolCall("store", {"text": "a } b ] c", "on": True, "number": 12.5, "none": None})
    script(calls=[call], times=2, constrained=True)
    answers = chat.both(tools=[ANYTHING], stream_interval=tokens)
    assert answers.streamed.arguments == [call.arguments]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "parallel_tools")
@pytest.mark.covers("VT-005", "VT-010")
@pytest.mark.parametrize("tokens", [4, 11, 1000])
def test_parallel_calls_survive_any_chunk_length(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    script("Both.", calls=[PARIS, ROME, ToolCall("now", {})], times=2, constrained=True)
    answers = chat.both(tools=[FREE, NOW], stream_interval=tokens)
    assert answers.streamed.arguments == [PARIS.arguments, ROME.arguments, {}]
    assert answers.streamed.content.strip() == "Both."


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-012", "VC-035")
@pytest.mark.vllm_known_defect("stop-string-inside-call")
def test_stop_string_inside_arguments(chat: Chat, script: ScriptWriter) -> None:
    """A stop string inside a call truncates the call; finish_reason is stop in body and stream."""
    call = ToolCall("store", {"text": f"alpha beta{AND_ON}"})
    script(calls=[call], times=2, expect="truncated", constrained=True)
    answers = chat.both(tools=[ANYTHING], stop=["beta"])
    assert answers.output.finish == "stop"
    assert "beta" not in answers.streamed.content + str(answers.streamed.calls)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-012")
@pytest.mark.vllm_known_defect("stop-string-shifts-what-hermes-streams")
def test_stop_string_that_does_not_occur(chat: Chat, script: ScriptWriter) -> None:
    """A stop string changes nothing if it does not occur, however the stream is split into chunks."""
    script(calls=[PARIS], times=2 * len(CUTS), constrained=True)
    for tokens in CUTS:
        answers = chat.both(tools=[FREE], stop=["Observation:", "###"], stream_interval=tokens)
        assert answers.output.calls == (("get_weather", PARIS.arguments_json),)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-019", "CO-14")
@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(
            "auto",
            marks=pytest.mark.vllm_known_defect("vllm-58228"),
        ),
        "required",
        "named",
    ],
)
@pytest.mark.vllm_known_defect("vllm-47903", models=["qwen3", "llama3.1"])
def test_call_cut_by_the_limit(choice: str, chat: Chat, script: ScriptWriter) -> None:
    """If the limit truncates a call, finish_reason is length and no markup appears as content."""
    written = script(calls=[PARIS], constrained=not chat.rust, times=2, expect="truncated")
    assert written is not None
    within = len(written.takes[0]) - 6
    tool_choice = named("get_weather") if choice == "named" else choice
    answers = chat.both(tools=[FREE], tool_choice=tool_choice, max_tokens=within)
    assert answers.output.finish == answers.streamed.finish == "length"
    assert "get_weather" not in answers.output.content
    assert "get_weather" not in answers.streamed.content


@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-019")
@pytest.mark.parametrize("choice", ["required", named("get_weather")], ids=["required", "named"])
@pytest.mark.vllm_known_defect("vllm-47903", models=["smollm2-135m", "llama3.1"])
def test_no_room_for_a_call(choice: Any, chat: Chat, script: ScriptWriter) -> None:
    """If the limit leaves too few tokens for the name, finish_reason is length and there is no call."""
    script(calls=[PARIS], constrained=not chat.rust, times=2, expect="truncated")
    answers = chat.both(tools=[WEATHER], tool_choice=choice, max_tokens=1)
    assert answers.output.finish == "length"
    assert not answers.output.calls


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-002", "VC-022")
@pytest.mark.parametrize("form", ["object", "dump", "sent"])
def test_own_answer_is_taken_back(form: str, chat: Chat, script: ScriptWriter) -> None:
    """An answer with a call can be sent back unchanged, in each form in which clients store it."""
    script(calls=[PARIS], constrained=True)
    answer = chat.body(tools=[FREE]).choices[0].message
    assert answer.tool_calls
    script("Rain.", times=2)
    output = {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "rain"}
    answers = chat.both([*ASK, kept(answer, form), output], tools=[FREE])
    assert answers.output.content.strip() == "Rain."


@pytest.mark.covers("VC-004", "VC-022")
@pytest.mark.parametrize("form", ["object", "dump", "sent"])
def test_own_text_is_taken_back(form: str, chat: Chat, script: ScriptWriter) -> None:
    """An answer without a call can be sent back too, with its empty fields as null, as clients send them."""
    script("Rain today.")
    answer = chat.body(max_tokens=30).choices[0].message
    script("Sun.")
    prompt = chat.prompt(
        [*ASK, kept(answer, form), {"role": "user", "content": "And tomorrow?"}], max_tokens=30
    )
    assert (
        prompt.index("in Paris?") < prompt.index((answer.content or "").strip()) < prompt.index("tomorrow?")
    )
