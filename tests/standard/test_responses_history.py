"""Responses with chat templates: how items of the conversation history become messages in the prompt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.behaviours.tools import RESPONSES_TOOL
from tests.responses_api import SHOW, Responses, messages_of, prompt_of
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_needs("responses")]

TURN = "<|im_start|>assistant\n"
QUESTION = {"role": "user", "content": "Weather in Oslo?"}
THOUGHTS = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "I must look."}],
}
WORDS = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
}
CALLS = [
    {
        "type": "function_call",
        "call_id": f"call_{number}",
        "name": "get_weather",
        "arguments": f'{{"city": "{city}"}}',
    }
    for number, city in enumerate(("Oslo", "Bergen"))
]
OUTPUTS = [
    {"type": "function_call_output", "call_id": call["call_id"], "output": f"rain {number}"}
    for number, call in enumerate(CALLS)
]


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-062", "VR-053")
@pytest.mark.parametrize(
    "turn",
    [
        [CALLS[0]],
        [WORDS, CALLS[0]],
        [THOUGHTS, CALLS[0]],
        [THOUGHTS, WORDS, CALLS[0]],
        [WORDS, THOUGHTS, CALLS[0]],
        [WORDS, *CALLS],
    ],
    ids=[
        *("call", "words and call", "thoughts and call"),
        *("all three", "thoughts after words", "words and two calls"),
    ],
)
def test_items_of_one_turn_are_one_message(
    turn: list[Any], responses: Responses, script: ScriptWriter
) -> None:
    """All items of a turn before the tool outputs become one assistant message (vllm#37167)."""
    script("Rain.")
    outputs = OUTPUTS[: sum(item["type"] == "function_call" for item in turn)]
    input_items = [QUESTION, *turn, *outputs]
    prompt = prompt_of(
        responses.create(input_items, tools=[RESPONSES_TOOL], extra_body=SHOW, max_output_tokens=64)
    )
    assert prompt.count(TURN) == 2  # one in the history, and the generation prompt
    message = prompt.split(TURN)[1].split("<|im_end|>")[0]
    assert ("Let me look." in message) == (WORDS in turn)
    assert ("I must look." in message) == (THOUGHTS in turn)
    assert [city in message for city in ("Oslo", "Bergen")] == [True, len(outputs) == 2]


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-062")
def test_raw_thoughts_come_before_their_summary(responses: Responses, script: ScriptWriter) -> None:
    script("Rain.")
    both = {**THOUGHTS, "summary": [{"type": "summary_text", "text": "In short."}]}
    input_items = [QUESTION, both, CALLS[0], OUTPUTS[0]]
    prompt = prompt_of(
        responses.create(input_items, tools=[RESPONSES_TOOL], extra_body=SHOW, max_output_tokens=64)
    )
    assert "I must look." in prompt
    assert "In short." not in prompt


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-062")
def test_summary_stands_in_for_missing_thoughts(responses: Responses, script: ScriptWriter) -> None:
    script("Rain.")
    only = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "In short."}]}
    input_items = [QUESTION, only, CALLS[0], OUTPUTS[0]]
    prompt = prompt_of(
        responses.create(input_items, tools=[RESPONSES_TOOL], extra_body=SHOW, max_output_tokens=64)
    )
    assert "In short." in prompt


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-062")
@pytest.mark.parametrize("status", ["in_progress", "incomplete"])
def test_unfinished_message_is_continued(status: str, responses: Responses, script: ScriptWriter) -> None:
    """The prompt ends within an unfinished message (of parts or text), so the model continues the message."""
    script("Oslo is wet.", times=2)
    in_parts = {**WORDS, "status": status}
    as_text = {"role": "assistant", "content": "Let me look.", "status": status}
    for unfinished in (in_parts, as_text):
        (prompt,) = messages_of(responses.create([QUESTION, unfinished], extra_body=SHOW))
        assert prompt["message"].endswith("Let me look.")


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-062", "VR-009")
@pytest.mark.parametrize("status", ["in_progress", "incomplete"])
def test_turn_of_unfinished_thoughts_goes_on(status: str, responses: Responses, script: ScriptWriter) -> None:
    """The prompt ends within the assistant turn that contains the unfinished reasoning."""
    script("Oslo is wet.")
    unfinished = {**THOUGHTS, "status": status}
    (prompt,) = messages_of(responses.create([QUESTION, unfinished], extra_body=SHOW))
    assert "I must look." in prompt["message"].split(TURN)[-1]
    assert not prompt["message"].rstrip().endswith("<|im_end|>")


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-062", "VR-009")
@pytest.mark.parametrize("status", ["completed", None])
def test_turn_of_finished_thoughts_is_over(
    status: str | None, responses: Responses, script: ScriptWriter
) -> None:
    """A new assistant turn follows finished reasoning; reasoning without a status counts as finished."""
    script("Oslo is wet.")
    finished = {**THOUGHTS, "status": status}
    (prompt,) = messages_of(responses.create([QUESTION, finished], extra_body=SHOW))
    assert prompt["message"].endswith(TURN)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-062")
@pytest.mark.parametrize("without", [(), ("status", "id")], ids=["whole", "no status"])
def test_finished_message_is_not_continued(
    without: tuple[str, ...], responses: Responses, script: ScriptWriter
) -> None:
    """A message without a status counts as finished."""
    script("Oslo is wet.")
    finished = {key: value for key, value in WORDS.items() if key not in without}
    (prompt,) = messages_of(responses.create([QUESTION, finished], extra_body=SHOW))
    assert prompt["message"].endswith(TURN)
    assert "Let me look.<|im_end|>" in prompt["message"]


@pytest.mark.vllm_needs("store")
@pytest.mark.covers("VR-062", "VR-021")
def test_instructions_do_not_outlive_their_request(responses: Responses, script: ScriptWriter) -> None:
    """Only the current request's instructions are in the prompt (vllm#37697)."""
    script("One.")
    first = responses.create("First?", instructions="Speak of rivers.", max_output_tokens=16)
    script("Two.")
    second = responses.create(
        "Second?",
        previous_response_id=first.id,
        instructions="Speak of lakes.",
        max_output_tokens=16,
        extra_body=SHOW,
    )
    script("Three.")
    third = responses.create("Third?", previous_response_id=second.id, max_output_tokens=16, extra_body=SHOW)
    assert [text in prompt_of(second) for text in ("rivers", "lakes", "First?")] == [False, True, True]
    assert prompt_of(second).index("lakes") < prompt_of(second).index("First?")
    assert [text in prompt_of(third) for text in ("rivers", "lakes", "First?", "Second?")] == [
        False,
        False,
        True,
        True,
    ]
