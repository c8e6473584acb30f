"""Forced calls by a real model, a complete tool loop, and the effect of `strict`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest

from tests.behaviours.tools import CHAT_TOOL, PARAMETERS, RESPONSES_TOOL, WEATHER
from tests.chat_api import Chat, named, output_of
from tests.responses_api import Responses, items
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_needs("tools")]

NAMED = {"type": "function", "name": "get_weather"}
REPORT = "18 degrees and light rain"
UNSAID = {key: value for key, value in RESPONSES_TOOL.items() if key != "strict"}
CHAT_UNSAID = {
    "type": "function",
    "function": {key: value for key, value in CHAT_TOOL["function"].items() if key != "strict"},
}
WRONG = ToolCall("get_weather", {"town": 7})


def check_arguments(arguments: Sequence[str]) -> None:
    """Checks that there are calls, and that the arguments of each call match the tool's schema."""
    assert arguments
    for each in arguments:
        try:
            jsonschema.validate(json.loads(each), PARAMETERS)
        except (ValueError, jsonschema.ValidationError) as error:
            raise AssertionError(f"arguments that the schema does not take: {each}: {error}") from error


@pytest.mark.vllm_live
@pytest.mark.vllm_needs("responses")
@pytest.mark.covers("VR-027", "VR-030")
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_forced_call(choice: Any, responses: Responses) -> None:
    body, stream = responses.both(WEATHER, tools=[RESPONSES_TOOL], tool_choice=choice, max_output_tokens=64)
    calls = items(body, "function_call")
    expect_content(body.status == "completed", f"a call within the budget, not {calls}")
    assert [call.name for call in calls] == ["get_weather"]
    check_arguments([call.arguments for call in calls])
    expect_content(json.loads(calls[0].arguments) == {"city": "Paris"}, f"Paris, not {calls[0].arguments}")
    assert not stream.joined("output_text").strip()


@pytest.mark.vllm_live
@pytest.mark.vllm_needs("chat")
@pytest.mark.covers("VC-019")
@pytest.mark.parametrize("choice", ["required", named("get_weather")], ids=["required", "named"])
def test_forced_call_over_chat(choice: Any, chat: Chat) -> None:
    answers = chat.both(
        [{"role": "user", "content": WEATHER}], tools=[CHAT_TOOL], tool_choice=choice, max_tokens=64
    )
    expect_content(answers.output.finish != "length", f"a call within the budget, not {answers.output}")
    assert answers.output.names == ["get_weather"]
    check_arguments([arguments for _, arguments in answers.output.calls])
    expect_content(answers.output.arguments == [{"city": "Paris"}], f"Paris, not {answers.output.arguments}")


@pytest.mark.vllm_live
@pytest.mark.vllm_needs("responses", "auto_tools")
@pytest.mark.covers("VR-027")
def test_a_call_of_its_own_accord(responses: Responses) -> None:
    body = responses.create(WEATHER, tools=[RESPONSES_TOOL])
    calls = items(body, "function_call")
    expect_content(bool(calls), f"a call, not {body.output_text!r}")
    check_arguments([call.arguments for call in calls])


@pytest.mark.vllm_live
@pytest.mark.vllm_needs("responses", "store")
@pytest.mark.covers("VR-041", "OR-009")
@pytest.mark.parametrize("chained", [True, False], ids=["previous_response_id", "history"])
def test_loop_of_call_output_and_answer(chained: bool, responses: Responses) -> None:
    """The answer contains a fact that only the tool's output provides."""
    first = responses.create(WEATHER, tools=[RESPONSES_TOOL], tool_choice="required", max_output_tokens=64)
    (call,) = items(first, "function_call")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": REPORT}
    question = {"role": "user", "content": "What is the weather? Answer in one sentence."}
    history = [{"role": "user", "content": WEATHER}, *[item.to_dict() for item in first.output]]
    more: dict[str, Any] = {"previous_response_id": first.id} if chained else {}
    body, _ = responses.both(
        [*([] if chained else history), output, question],
        tools=[RESPONSES_TOOL],
        tool_choice="none",
        max_output_tokens=64,
        **more,
    )
    assert [item.type for item in body.output] == ["message"]
    expect_content(
        "18" in body.output_text or "rain" in body.output_text, f"the weather, not {body.output_text!r}"
    )


@pytest.mark.vllm_live
@pytest.mark.vllm_needs("chat")
@pytest.mark.covers("VC-020")
def test_loop_over_chat(chat: Chat) -> None:
    messages: list[Any] = [{"role": "user", "content": WEATHER}]
    first = chat.body(messages, tools=[CHAT_TOOL], tool_choice="required", max_tokens=64)
    message = first.choices[0].message
    assert message.tool_calls
    messages += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": REPORT},
        {"role": "user", "content": "What is the weather? Answer in one sentence."},
    ]
    answer = output_of(chat.body(messages, tools=[CHAT_TOOL], tool_choice="none", max_tokens=64))
    assert answer.finish in {"stop", "length"}
    assert not answer.calls
    expect_content("18" in answer.content or "rain" in answer.content, f"the weather, not {answer.content!r}")


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("responses")
@pytest.mark.covers("VR-027")
@pytest.mark.vllm_known_defect("strict-is-left-out-of-a-tool")
def test_default_strict_holds_a_call_to_its_schema(responses: Responses, script: ScriptWriter) -> None:
    """Responses: `strict` defaults to true (FunctionTool.strict in OpenAI's published specification)."""
    script(calls=[WRONG], constrained=True, expect="refused")
    body = {"model": responses.model, "input": WEATHER, "tools": [UNSAID], "tool_choice": "required"}
    answer = responses.post(body)
    assert answer.status_code == 422, f"the model may say {WRONG.arguments}: {answer.text}"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("responses")
@pytest.mark.covers("VR-027")
def test_explicit_strict_holds_a_call_to_its_schema(responses: Responses, script: ScriptWriter) -> None:
    script(calls=[WRONG], constrained=True, expect="refused")
    body = {"model": responses.model, "input": WEATHER, "tools": [RESPONSES_TOOL], "tool_choice": "required"}
    assert responses.post(body).status_code == 422


@pytest.mark.vllm_live
@pytest.mark.vllm_needs("responses")
@pytest.mark.covers("VR-027")
@pytest.mark.vllm_known_defect("strict-is-left-out-of-a-tool", models=["smollm2-135m"])
def test_default_strict_on_a_model_that_needs_it(responses: Responses) -> None:
    body = responses.create(WEATHER, tools=[UNSAID], tool_choice="required", max_output_tokens=96)
    check_arguments([call.arguments for call in items(body, "function_call")])


@pytest.mark.vllm_greedy
@pytest.mark.vllm_live
@pytest.mark.vllm_needs("chat")
@pytest.mark.covers("VC-019")
def test_default_strict_over_chat_leaves_arguments_free(chat: Chat) -> None:
    """Chat: `strict` defaults to false, so arguments may be invalid, but a call must be made."""
    answer = output_of(
        chat.body(
            [{"role": "user", "content": WEATHER}], tools=[CHAT_UNSAID], tool_choice="required", max_tokens=96
        )
    )
    assert answer.finish == "length" or answer.names == ["get_weather"]
