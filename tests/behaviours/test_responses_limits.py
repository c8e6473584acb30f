"""Responses: token budgets, stop strings and the end of the context."""

from __future__ import annotations

from typing import Any

import pytest

from tests.behaviours.stop_strings import AND_ON
from tests.behaviours.tools import CALL, RESPONSES_TOOL
from tests.responses_api import SHOW, Responses, items, messages_of
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_needs("responses")

STORY = "Tell me a long story about a dragon."
TWELVE = "one two three four five six seven eight nine ten eleven twelve"
LONG = TWELVE + AND_ON
TERMINAL_NAME = pytest.mark.vllm_known_defect("vllm-45386")


def ask(responses: Responses, stream: bool, input: Any, **more: Any) -> Any:
    """Returns one response, from a body or from the end of a stream."""
    return responses.stream(input, **more).terminal if stream else responses.create(input, **more)


@pytest.mark.covers("VR-013", "LS-010", "LS-016")
@pytest.mark.parametrize("limit", [1, 5, 16])
def test_budget_cuts_the_body(limit: int, responses: Responses, script: ScriptWriter) -> None:
    script(TWELVE * 3, expect="truncated")
    response = responses.create(STORY, max_output_tokens=limit)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.max_output_tokens == limit
    assert response.usage is not None
    assert response.usage.output_tokens == limit


@pytest.mark.covers("VR-013", "VR-075", "LS-016", "AG-005")
@TERMINAL_NAME
def test_budget_cuts_the_stream(responses: Responses, script: ScriptWriter) -> None:
    script(TWELVE * 3, expect="truncated")
    stream = responses.stream(STORY, max_output_tokens=12)
    assert stream.types[-1] == "response.incomplete"
    assert stream.terminal.status == "incomplete"
    assert stream.terminal.incomplete_details is not None
    assert stream.terminal.incomplete_details.reason == "max_output_tokens"
    assert stream.terminal.usage is not None
    assert stream.terminal.usage.output_tokens == 12


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-013", "LS-010")
@pytest.mark.parametrize(("short", "status"), [(0, "completed"), (1, "incomplete")])
def test_budget_is_exact(short: int, status: str, responses: Responses, script: ScriptWriter) -> None:
    """An answer that just fits the budget is complete; with a budget of one token less, it is truncated."""
    probe = script(TWELVE)
    assert probe is not None
    length = len(probe.takes[0])
    responses.create(STORY)
    script(TWELVE, expect="truncated" if short else "done")
    response = responses.create(STORY, max_output_tokens=length - short)
    assert response.status == status
    assert response.output_text.strip() == TWELVE


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-013", "VR-061", "VR-075")
@pytest.mark.vllm_known_defect("vllm-57998")
def test_cut_message_is_incomplete(responses: Responses, script: ScriptWriter) -> None:
    script(TWELVE, expect="truncated")
    response = responses.create(STORY, max_output_tokens=12)
    assert response.status == "incomplete"
    assert response.output[-1].type == "message"
    assert TWELVE.startswith(response.output_text.strip())
    assert response.output_text.strip()
    assert response.output[-1].status == "incomplete"


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-013", "VR-061", "VR-075")
@pytest.mark.vllm_known_defect("vllm-57998-harmony")
@pytest.mark.vllm_known_defect("vllm-57998")
def test_cut_message_of_a_stream_is_incomplete(responses: Responses, script: ScriptWriter) -> None:
    script(TWELVE, expect="truncated")
    events = list(
        responses.client.responses.create(**responses.request(STORY, {"max_output_tokens": 12}), stream=True)
    )
    done: list[Any] = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.status for item in done if item.type == "message"] == ["incomplete"]
    last: Any = events[-1]
    assert last.response.output[-1].status == "incomplete"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VR-026", "VR-074")
def test_budget_before_a_forced_call_ends(responses: Responses, script: ScriptWriter) -> None:
    """A truncated call is marked as incomplete or left out, so that the client does not run it."""
    call = ToolCall("get_weather", {"city": "Paris, and then some more words " * 4})
    script(calls=[call], constrained=True, expect="truncated")
    tool = {**RESPONSES_TOOL, "strict": False}
    response = responses.create("Weather?", tools=[tool], tool_choice="required", max_output_tokens=24)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert [item for item in items(response, "function_call") if item.status == "completed"] == []


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VR-013", "VR-053")
@pytest.mark.parametrize("stream", [False, True])
def test_budget_before_the_thoughts_end(stream: bool, responses: Responses, script: ScriptWriter) -> None:
    """If the budget truncates the reasoning, none of it becomes text."""
    script("Yes.", reasoning=TWELVE, expect="truncated", name="thoughts")
    request = responses.request(STORY, {"max_output_tokens": 10})
    if stream:
        last: Any = list(responses.client.responses.create(**request, stream=True))[-1]
        response = last.response
    else:
        response = responses.client.responses.create(**request)
    assert response.status == "incomplete"
    assert [item.type for item in response.output] == ["reasoning"]
    reasoning = "".join(part.text for part in response.output[0].content).strip()
    assert reasoning
    assert TWELVE.startswith(reasoning)


@pytest.mark.vllm_needs("store")
@pytest.mark.covers("VR-074")
def test_budget_of_a_follow_up_is_its_own(responses: Responses, script: ScriptWriter) -> None:
    script("Noted.")
    first = responses.create("Remember heliotrope.", max_output_tokens=64)
    script(TWELVE, expect="truncated")
    second = responses.create(STORY, previous_response_id=first.id, max_output_tokens=6)
    assert second.status == "incomplete"
    assert second.usage is not None
    assert second.usage.output_tokens == 6


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-059")
@pytest.mark.vllm_known_defect("stop-string-leaves-harmony-message-incomplete")
@pytest.mark.parametrize("stop", ["seven", ["nowhere", "seven"]])
def test_stop_string_ends_the_text(stop: Any, responses: Responses, script: ScriptWriter) -> None:
    """With vLLM's own `stop`, the text ends before the stop string, and the response is complete."""
    script(LONG, expect="truncated", times=2)
    body, stream = responses.both(STORY, but=["reasoning_tokens"], extra_body={"stop": stop})
    for response in (body, stream.terminal):
        assert response.status == "completed"
        assert response.output_text.strip() == "one two three four five six"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_standard
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VT-012")
@pytest.mark.vllm_known_defect("reasoning-tokens-stream-beside-stop-string")
def test_thoughts_count_the_same_beside_a_stop_string(responses: Responses, script: ScriptWriter) -> None:
    """The count must not depend on the chunks."""
    for delivery in ("tokens_1", "tokens_4", "all"):
        script(LONG, expect="truncated", times=2, delivery=delivery)
        responses.both(STORY, extra_body={"stop": ["nowhere", "seven"]})


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VT-012")
@pytest.mark.vllm_known_defect("stop-string-shifts-what-hermes-streams")
def test_stop_string_that_never_comes_changes_nothing(responses: Responses, script: ScriptWriter) -> None:
    """A stop string that does not occur changes nothing, however the stream is split into chunks."""
    for delivery in ("tokens_1", "tokens_4", "all"):
        script(calls=[CALL], times=2, delivery=delivery)
        body, _ = responses.both("Weather?", tools=[RESPONSES_TOOL], extra_body={"stop": ["nowhere"]})
        assert items(body, "function_call")[0].arguments == CALL.arguments_json


def over_the_context(words: int = 60_000) -> str:
    """Returns more text than fits into the context of any model entry."""
    return "dragon " * words


@pytest.mark.covers("VR-074", "LS-032")
@pytest.mark.parametrize("stream", [False, True])
def test_context_overflow_is_refused(stream: bool, responses: Responses, script: ScriptWriter) -> None:
    size = 140_000
    answer = responses.post({"model": responses.model, "input": over_the_context(size), "stream": stream})
    assert answer.status_code == 400
    body = answer.json()
    responses.check("check_body")(body)
    assert "context length" in body["error"]["message"] or "max_model_len" in body["error"]["message"]
    script("Still here.")
    assert responses.create("Are you there?", max_output_tokens=16).output


@pytest.mark.vllm_model("qwen3", "smollm2-135m")
@pytest.mark.covers("LS-012")
def test_long_input_is_truncated_where_asked(responses: Responses, script: ScriptWriter) -> None:
    """`truncation: auto` drops items, so that the prompt fits and leaves room for at least one token."""
    script("Fine.", expect="truncated")
    response = responses.create(over_the_context(), truncation="auto", max_output_tokens=16, extra_body=SHOW)
    assert response.status in ("completed", "incomplete")
    assert response.usage is not None
    assert response.usage.input_tokens == len(messages_of(response)[0]["tokens"])
    assert response.usage.input_tokens < 50_000


@pytest.mark.covers("LS-012")
@pytest.mark.vllm_known_defect("truncation-auto-needs-an-output-limit")
@pytest.mark.parametrize("stream", [False, True])
def test_long_input_is_truncated_without_a_limit_of_the_answer(
    stream: bool, responses: Responses, script: ScriptWriter
) -> None:
    script("Fine.", expect="truncated")
    long = over_the_context(140_000)
    answer = responses.client.responses.create(
        model=responses.model, input=long, truncation="auto", stream=stream
    )
    list(answer)


@pytest.mark.vllm_model("qwen3", "smollm2-135m")
@pytest.mark.covers("LS-012")
@pytest.mark.vllm_known_defect("truncation-auto-drops-the-instructions")
def test_truncation_leaves_the_instructions(responses: Responses, script: ScriptWriter) -> None:
    """Truncation drops items from the start of the conversation, but never the instructions."""
    script("Fine.")
    script("Fine.", expect="truncated")
    conversation = [{"role": "user", "content": over_the_context(600)}] * 100
    begins = [
        messages_of(
            responses.create(
                items,
                instructions="Answer like a pirate.",
                truncation="auto",
                max_output_tokens=16,
                extra_body=SHOW,
            )
        )[0]["tokens"][:6]
        for items in ("Hi", conversation)
    ]
    assert begins[0] == begins[1], "the prompt does not begin with the instructions"
