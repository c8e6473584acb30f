"""Responses: function calls, their arguments, the choice between tools, and the turns that follow."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from openai.types.responses import Response

from tests.behaviours.tools import PARAMETERS, RESPONSES_TOOL
from tests.case_files import cases
from tests.responses_api import IDS_MADE_AGAIN, SHOW, Responses, Stream, items, prompt_of
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_needs("responses"), pytest.mark.vllm_needs("tools")]

WEATHER = "What is the weather in Paris? Call the tool."
CALL = ToolCall("get_weather", {"city": "Paris"})
NAMED = {"type": "function", "name": "get_weather"}
FREE: dict[str, Any] = {
    "type": "function",
    "name": "record",
    "parameters": {"type": "object", "properties": {}},
}


def only_call(response: Response) -> Any:
    """Returns the only call of a response."""
    calls = items(response, "function_call")
    assert len(calls) == 1, f"one call, not {[item.type for item in response.output]}"
    return calls[0]


def check_events(stream: Stream) -> None:
    """Asserts that each call's events have its name, ids and arguments, without events of other calls."""
    calls = items(stream.terminal, "function_call")
    for call in calls:
        ends = stream.of("output_item.added", "output_item.done")
        reported = [event.item for event in ends if event.item.id == call.id]
        assert len(reported) == 2, (
            f"the stream reports item {call.id} of the terminal response {len(reported)} times"
        )
        added, done = reported
        assert (added.name, added.call_id, added.status) == (call.name, call.call_id, "in_progress")
        assert (done.name, done.call_id, done.arguments) == (call.name, call.call_id, call.arguments)
        deltas = [e.delta for e in stream.of("function_call_arguments.delta") if e.item_id == call.id]
        finished = [e for e in stream.of("function_call_arguments.done") if e.item_id == call.id]
        assert "".join(deltas) == call.arguments
        assert [(event.name, event.arguments) for event in finished] == [(call.name, call.arguments)]
    assert [kind for kind in stream.types if "code_interpreter" in kind or "mcp" in kind] == []


@IDS_MADE_AGAIN
@pytest.mark.covers("VR-025", "VR-027", "VR-028", "VR-029", "VR-030", "VR-037", "AG-002", "OR-004", "OR-005")
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_forced_call(choice: Any, responses: Responses, script: ScriptWriter) -> None:
    """The answer is one call, which fits the schema, and no text; the stream matches the body."""
    script(calls=[CALL], constrained=True, times=2)
    body, stream = responses.both(WEATHER, tools=[RESPONSES_TOOL], tool_choice=choice, max_output_tokens=256)
    for response in (body, stream.terminal):
        expect_content(response.status == "completed", f"a call within the budget, not {response.output}")
        call = only_call(response)
        assert call.name == "get_weather"
        assert call.status == "completed"
        assert call.call_id
        jsonschema.validate(json.loads(call.arguments), PARAMETERS)
        assert response.output_text.strip() == ""
        if script.exact:
            assert json.loads(call.arguments) == {"city": "Paris"}
    check_events(stream)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-025", "VR-028", "VR-029", "VR-030", "VR-037", "VR-045", "VR-046", "AG-002", "VR-054")
def test_free_call(responses: Responses, script: ScriptWriter) -> None:
    script(calls=[CALL], times=2, constrained=True)
    body, stream = responses.both(WEATHER, tools=[RESPONSES_TOOL], tool_choice="auto")
    for response in (body, stream.terminal):
        call = only_call(response)
        assert (call.name, call.arguments, call.status) == ("get_weather", CALL.arguments_json, "completed")
        assert response.output_text.strip() == ""
    check_events(stream)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-030", "VT-013")
def test_no_call_where_the_model_makes_none(responses: Responses, script: ScriptWriter) -> None:
    script("I do not need a tool for that.", times=2)
    body, stream = responses.both("Say something.", tools=[RESPONSES_TOOL])
    assert items(body, "function_call") == []
    assert body.output_text.strip() == "I do not need a tool for that."
    assert stream.of("function_call_arguments.delta", "function_call_arguments.done") == []


@pytest.mark.covers("AG-002", "VR-060")
def test_no_call_where_none_is_chosen(responses: Responses, script: ScriptWriter) -> None:
    script("It may be sunny.", times=2)
    body, stream = responses.both(WEATHER, tools=[RESPONSES_TOOL], tool_choice="none", max_output_tokens=64)
    for response in (body, stream.terminal):
        assert items(response, "function_call") == []
        assert response.tool_choice == "none"


@pytest.mark.vllm_scripted
@pytest.mark.covers("AG-002")
@pytest.mark.vllm_known_defect("vllm-23227")
def test_call_against_none_is_not_taken(responses: Responses, script: ScriptWriter) -> None:
    """If the model makes a call that is not allowed, the client does not get a call to run."""
    script(calls=[CALL], times=2, constrained=True)
    body, stream = responses.both(WEATHER, tools=[RESPONSES_TOOL], tool_choice="none")
    for response in (body, stream.terminal):
        assert items(response, "function_call") == []


@pytest.mark.vllm_needs("reasoning")
@pytest.mark.parametrize("case", cases("responses_calls", "compatibility"))
def test_compatibility_calls(case: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    """The answer has reasoning, and then the call with the arguments that the model wrote."""
    call = ToolCall(case["name"], case["arguments"])
    script(reasoning="I should call the tool.", calls=[call], times=2, constrained=True)
    tool = {
        "type": "function",
        **{key: case[key] for key in ("name", "description", "parameters") if key in case},
        "strict": False,
    }
    body, stream = responses.both(case["ask"], tools=[tool])
    for response in (body, stream.terminal):
        calls = items(response, "function_call")
        expect_content(calls, f"a call, not {[item.type for item in response.output]}")
        assert calls[0].name == case["name"]
        jsonschema.validate(json.loads(calls[0].arguments), case["parameters"])
        thoughts = items(response, "reasoning")
        expect_content(thoughts, "reasoning before the call")
        assert [part.type for item in thoughts for part in item.content] == ["reasoning_text"] * len(thoughts)
        if script.exact:
            assert json.loads(calls[0].arguments) == case["arguments"]
            assert thoughts[0].content[0].text.strip() == "I should call the tool."
    assert stream.of("reasoning_text.delta")
    assert stream.of("reasoning_text.done")
    check_events(stream)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VT-012", "VR-028", "GO-003")
@pytest.mark.parametrize("case", cases("responses_calls", "shapes"))
def test_arguments_come_through(case: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    """The arguments in the body and in the deltas are byte for byte as the model wrote them."""
    call = ToolCall("record", case["arguments"])
    script(calls=[call], times=2, constrained=True)
    body, stream = responses.both("Record this.", tools=[FREE])
    assert only_call(body).arguments == call.arguments_json
    assert stream.joined("function_call_arguments") == call.arguments_json
    check_events(stream)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-028")
def test_long_arguments_come_through(responses: Responses, script: ScriptWriter) -> None:
    call = ToolCall("record", {f"key {number}": "a few words, " * 6 for number in range(6)})
    script(calls=[call], times=2, constrained=True)
    body, stream = responses.both("Record this.", tools=[FREE])
    assert only_call(body).arguments == call.arguments_json
    assert len(stream.of("function_call_arguments.delta")) > 20
    check_events(stream)


def output_of(call: Any, output: str = "21 degrees and sunny") -> dict[str, str]:
    """Returns an output of the function, as an input item."""
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


@pytest.mark.covers("VR-044", "VR-053")
def test_answer_after_the_whole_history(responses: Responses, script: ScriptWriter) -> None:
    """The output items are sent back unchanged; the prompt contains the output once."""
    script(calls=[CALL], constrained=True)
    first = responses.create(WEATHER, tools=[RESPONSES_TOOL], tool_choice=NAMED, max_output_tokens=256)
    expect_content(first.status == "completed", "a call within the budget")
    call = only_call(first)
    history = [
        {"role": "user", "content": WEATHER},
        *[item.to_dict() for item in first.output],
        output_of(call),
    ]
    script("It is 21 degrees in Paris.")
    second = responses.create(
        history, tools=[RESPONSES_TOOL], tool_choice="none", max_output_tokens=64, extra_body=SHOW
    )
    prompt = prompt_of(second)
    assert prompt.count("21 degrees and sunny") == 1
    assert prompt.index(WEATHER) < prompt.index("21 degrees and sunny")
    assert items(second, "function_call") == []
    if script.exact:
        assert second.output_text.strip() == "It is 21 degrees in Paris."


@pytest.mark.vllm_needs("store")
@pytest.mark.covers("VR-041", "VR-042", "VR-045", "OR-009", "LS-024", "AG-004")
@pytest.mark.parametrize("stream", [False, True])
def test_answer_after_a_stored_call(stream: bool, responses: Responses, script: ScriptWriter) -> None:
    """Runs a call, its output with `previous_response_id`, the answer, and one more question."""

    def ask(input: Any, previous: Response | None, choice: Any = "none") -> Response:
        more: dict[str, Any] = {
            "previous_response_id": previous.id if previous else None,
            "tools": [RESPONSES_TOOL],
            "tool_choice": choice,
            "max_output_tokens": 256,
            "extra_body": SHOW,
        }
        return responses.stream(input, **more).terminal if stream else responses.create(input, **more)

    script(calls=[CALL], constrained=True)
    first = ask(WEATHER, None, NAMED)
    expect_content(first.status == "completed", "a call within the budget")
    script("It is 21 degrees in Paris.")
    second = ask([output_of(only_call(first))], first)
    assert prompt_of(second).count("21 degrees and sunny") == 1
    script("You are welcome.")
    third = ask("Thank you.", second)
    echoed = second.output_text.count("21 degrees and sunny")
    assert prompt_of(third).count("21 degrees and sunny") == 1 + echoed
    assert items(second, "function_call") == []
    if script.exact:
        assert second.output_text.strip() == "It is 21 degrees in Paris."
        assert prompt_of(third).count("It is 21 degrees in Paris.") == 1


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("store")
@pytest.mark.covers("VR-041", "VR-044", "VR-061")
@pytest.mark.vllm_known_defect("vllm-43244", models=["qwen3", "llama3.1", "smollm2-135m"])
def test_stored_turn_is_the_history_sent_again(responses: Responses, script: ScriptWriter) -> None:
    """The prompt has the same length with `previous_response_id` as with the full history."""
    script(calls=[CALL], constrained=True)
    first = responses.create(WEATHER, tools=[RESPONSES_TOOL])
    output = output_of(only_call(first))
    script("It is 21 degrees in Paris.", times=2)
    stored = responses.create([output], previous_response_id=first.id, tools=[RESPONSES_TOOL])
    history = [{"role": "user", "content": WEATHER}, *[item.to_dict() for item in first.output], output]
    sent = responses.create(history, tools=[RESPONSES_TOOL])
    assert stored.usage is not None
    assert sent.usage is not None
    assert stored.usage.input_tokens == sent.usage.input_tokens


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-042", "VT-013", "LS-024")
@pytest.mark.parametrize("streamed", [False, True])
def test_second_tool_in_a_story(streamed: bool, responses: Responses, script: ScriptWriter) -> None:
    """Runs a call of one tool, its output, a call of another tool, its output, and the answer."""
    tides = {**RESPONSES_TOOL, "name": "get_tides"}
    history: list[Any] = [{"role": "user", "content": "Compare Oslo and Paris."}]
    ids = []
    for number, call in enumerate((ToolCall("get_tides", {"city": "Oslo"}), CALL)):
        script(calls=[call], constrained=True)
        response = (
            responses.stream(history, tools=[RESPONSES_TOOL, tides]).terminal
            if streamed
            else responses.create(history, tools=[RESPONSES_TOOL, tides])
        )
        made = only_call(response)
        assert (made.name, json.loads(made.arguments)) == (call.name, call.arguments)
        ids.append(made.call_id)
        history += [*[item.to_dict() for item in response.output], output_of(made, f"result {number}")]
    assert len(set(ids)) == 2
    script("Paris is warmer.")
    last = responses.create(history, tools=[RESPONSES_TOOL, tides], extra_body=SHOW)
    assert [prompt_of(last).count(f"result {number}") for number in (0, 1)] == [1, 1]
    assert last.output_text.strip() == "Paris is warmer."


@pytest.mark.covers("VR-061", "LS-032")
@pytest.mark.vllm_known_defect("output-without-its-call-is-taken-except-on-harmony")
def test_output_of_an_unknown_call_is_refused(responses: Responses) -> None:
    body = {
        "model": responses.model,
        "input": [
            {"role": "user", "content": WEATHER},
            {"type": "function_call_output", "call_id": "call_of_nobody", "output": "21 degrees"},
        ],
        "tools": [RESPONSES_TOOL],
        "max_output_tokens": 16,
    }
    answer = responses.post(body)
    assert answer.status_code == 400
    assert "call_of_nobody" in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "input"


PAIR = (ToolCall("get_weather", {"city": "Paris"}), ToolCall("get_weather", {"city": "Oslo"}))


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("parallel_tools")
@pytest.mark.covers("VR-065", "VR-067", "LS-013", "AG-004")
@pytest.mark.parametrize("parallel", [True, None])
def test_parallel_calls(parallel: bool | None, responses: Responses, script: ScriptWriter) -> None:
    """Two calls in one turn keep their order, and each has its own ids and index."""
    script(calls=PAIR, times=2, constrained=True)
    body, stream = responses.both("Paris and Oslo?", tools=[RESPONSES_TOOL], parallel_tool_calls=parallel)
    for response in (body, stream.terminal):
        calls = items(response, "function_call")
        assert [json.loads(call.arguments)["city"] for call in calls] == ["Paris", "Oslo"]
        assert len({call.id for call in calls} | {call.call_id for call in calls}) == 4
    check_events(stream)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("parallel_tools")
@pytest.mark.covers("VR-061", "AG-004")
def test_outputs_of_parallel_calls_in_any_order(responses: Responses, script: ScriptWriter) -> None:
    script(calls=PAIR, constrained=True)
    first = responses.create("Paris and Oslo?", tools=[RESPONSES_TOOL])
    paris, oslo = items(first, "function_call")
    script("Paris is warmer.")
    history = [
        {"role": "user", "content": "Paris and Oslo?"},
        *[item.to_dict() for item in first.output],
        output_of(oslo, "four degrees"),
        output_of(paris, "twenty degrees"),
    ]
    second = responses.create(history, tools=[RESPONSES_TOOL], extra_body=SHOW)
    prompt = prompt_of(second)
    assert [prompt.count(text) for text in ("four degrees", "twenty degrees")] == [1, 1]
    assert second.output_text.strip() == "Paris is warmer."


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("parallel_tools")
@pytest.mark.covers("LS-025")
def test_max_tool_calls_does_not_bind_functions(responses: Responses, script: ScriptWriter) -> None:
    """`max_tool_calls` limits only built-in tools, so more functions may be called."""
    script(calls=PAIR, constrained=True, times=2)
    body, stream = responses.both("Paris and Oslo?", tools=[RESPONSES_TOOL], max_tool_calls=1)
    for response in (body, stream.terminal):
        assert [call.status for call in items(response, "function_call")] == ["completed"] * 2
        assert response.max_tool_calls == 1


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-025")
def test_tool_with_references_in_its_schema(responses: Responses, script: ScriptWriter) -> None:
    """`$defs` and `$ref` in a tool's schema work under a grammar."""
    tool = {
        "type": "function",
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "units": {"$ref": "#/$defs/units"}},
            "required": ["city", "units"],
            "additionalProperties": False,
            "$defs": {"units": {"type": "string", "enum": ["metric", "imperial"]}},
        },
    }
    script(calls=[ToolCall("get_weather", {"city": "Paris", "units": "metric"})], constrained=True, times=2)
    body, _ = responses.both(WEATHER, tools=[tool], tool_choice="required")
    assert json.loads(only_call(body).arguments) == {"city": "Paris", "units": "metric"}
    echoed: Any = body.tools[0]
    assert echoed.parameters == tool["parameters"]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VR-028", "VR-065")
@pytest.mark.vllm_known_defect("blank-lines-before-a-call-are-streamed", models=["qwen3"])
def test_blanks_between_thoughts_and_call_are_no_message(responses: Responses, script: ScriptWriter) -> None:
    """The empty line that Qwen3 writes between reasoning and call does not become a message."""
    script(reasoning="I need the weather.", calls=[CALL])
    stream = responses.stream(WEATHER, tools=[FREE, {**RESPONSES_TOOL, "strict": False}])
    assert [item.type for item in stream.terminal.output] == ["reasoning", "function_call"]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VR-012", "VR-025", "VR-054")
def test_reasoning_then_call(responses: Responses, script: ScriptWriter) -> None:
    script(reasoning="I need the weather.", calls=[CALL], times=2, constrained=True)
    body, stream = responses.both(WEATHER, tools=[RESPONSES_TOOL])
    for response in (body, stream.terminal):
        kinds = [item.type for item in response.output]
        assert kinds == ["reasoning", "function_call"]
    check_events(stream)
