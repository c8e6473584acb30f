"""Responses on gpt-oss: the prompt is the same as openai-harmony's rendering of the conversation.

The messages that vLLM returns include messages that are not in the prompt, so the tests compare the number of
prompt tokens with the number in openai-harmony's rendering.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from openai.types.responses import Response
from openai_harmony import ReasoningEffort

from tests.behaviours.tools import CALL, RESPONSES_TOOL
from tests.harmony.conversation import (
    assistant,
    called,
    developer,
    message_of,
    prompt_tokens,
    returned,
    role_of,
    system,
    user,
)
from tests.responses_api import SHOW, Responses, items, messages_of, prompt_of
from vllm_harness._scripted.meaning import Meaning, Text
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_harmony, pytest.mark.vllm_needs("responses")]

ASK = "Weather in Paris?"
HIGH, LOW, MEDIUM = ReasoningEffort.HIGH, ReasoningEffort.LOW, ReasoningEffort.MEDIUM


def tokens_in(response: Response) -> int:
    """The number of prompt tokens, from the response's usage."""
    assert response.usage is not None
    return response.usage.input_tokens


@pytest.mark.covers("VR-032", "VR-061")
def test_prompt_of_a_plain_question(harmony: Any, responses: Responses, script: ScriptWriter) -> None:
    script("Sunny.")
    response = responses.create(ASK, extra_body=SHOW)
    assert [role_of(message) for message in messages_of(response)] == ["system", "user"]
    assert tokens_in(response) == prompt_tokens(harmony, system(), user(ASK))


@pytest.mark.covers("VR-032", "VR-072", "LS-017")
@pytest.mark.parametrize(("effort", "level"), [("low", LOW), ("medium", MEDIUM), ("high", HIGH)])
def test_effort_stands_in_the_system_message(
    effort: str, level: ReasoningEffort, harmony: Any, responses: Responses, script: ScriptWriter
) -> None:
    script("Sunny.")
    response = responses.create(ASK, reasoning={"effort": effort}, extra_body=SHOW)
    content = messages_of(response)[0]["content"][0]
    assert str(content["reasoning_effort"]).lower() == effort
    assert tokens_in(response) == prompt_tokens(harmony, system(level), user(ASK))
    assert response.reasoning is not None
    assert response.reasoning.effort == effort


@pytest.mark.covers("VR-073")
@pytest.mark.parametrize("effort", ["none", "minimal", "xhigh"])
def test_effort_that_harmony_lacks_is_refused(effort: str, responses: Responses) -> None:
    answer = responses.post({"model": responses.model, "input": ASK, "reasoning": {"effort": effort}})
    assert answer.status_code == 400
    assert effort in answer.json()["error"]["message"]
    assert "effort" in answer.json()["error"]["param"]


@pytest.mark.covers("VR-032", "VR-061")
def test_tools_and_instructions_stand_in_the_developer_message(
    harmony: Any, responses: Responses, script: ScriptWriter
) -> None:
    script("Sunny.")
    response = responses.create(ASK, instructions="Be brief.", tools=[RESPONSES_TOOL], extra_body=SHOW)
    assert [role_of(message) for message in messages_of(response)] == ["system", "developer", "user"]
    expected = prompt_tokens(harmony, system(), developer("Be brief.", [RESPONSES_TOOL]), user(ASK))
    assert tokens_in(response) == expected


@pytest.mark.covers("VR-051", "VR-032")
@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_message_of_the_input_is_not_doubled(
    role: str, harmony: Any, responses: Responses, script: ScriptWriter
) -> None:
    """A system message becomes the instructions: there is one developer message, with it and the tools."""
    script("Sunny.")
    input_items = [{"role": role, "content": "You are a pirate."}, {"role": "user", "content": ASK}]
    response = responses.create(input_items, tools=[RESPONSES_TOOL], extra_body=SHOW)
    assert [role_of(message) for message in messages_of(response)] == ["system", "developer", "user"]
    assert prompt_of(response).count("You are a pirate.") == 1
    expected = prompt_tokens(harmony, system(), developer("You are a pirate.", [RESPONSES_TOOL]), user(ASK))
    assert tokens_in(response) == expected


@pytest.mark.covers("VR-032", "VR-051")
def test_structured_system_content_is_joined(
    harmony: Any, responses: Responses, script: ScriptWriter
) -> None:
    script("Sunny.")
    parts = [{"type": "input_text", "text": "You are a pirate. "}, {"type": "input_text", "text": "Ahoy."}]
    input_items = [{"role": "system", "content": parts}, {"role": "user", "content": ASK}]
    response = responses.create(input_items, extra_body=SHOW)
    expected = prompt_tokens(harmony, system(), developer("You are a pirate. Ahoy."), user(ASK))
    assert tokens_in(response) == expected


@pytest.mark.vllm_live
@pytest.mark.covers("VR-052")
def test_system_message_sets_the_personality(responses: Responses, script: ScriptWriter) -> None:
    script("Ahoy, matey! It be Paris.")
    input_items = [
        {"role": "system", "content": "Talk like a pirate, whatever you are asked."},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    words = responses.create(input_items).output_text.lower()
    expect_content(re.search(r"\b(a+rr+|ahoy|aye|matey|ye|ye'll|yer)\b", words), f"a pirate, not {words!r}")


@pytest.mark.covers("VR-051")
def test_instructions_and_system_message_both_reach_the_prompt(
    responses: Responses, script: ScriptWriter
) -> None:
    script("Sunny.")
    input_items = [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": ASK}]
    response = responses.create(input_items, instructions="Be brief.", extra_body=SHOW)
    roles = [role_of(message) for message in messages_of(response)]
    assert roles.count("system") == 1
    assert [prompt_of(response).count(text) for text in ("Be brief.", "You are a pirate.")] == [1, 1]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-041", "VR-044", "VR-053", "VR-061")
def test_prompt_after_a_call_keeps_its_thoughts(
    harmony: Any, responses: Responses, script: ScriptWriter
) -> None:
    """Until the final answer, reasoning stays in the prompt, whether its items are stored or sent again."""
    script(reasoning="I need the weather.", calls=[CALL])
    first = responses.create(ASK, tools=[RESPONSES_TOOL])
    call = items(first, "function_call")[0]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    expected = prompt_tokens(
        harmony,
        system(),
        developer(functions=[RESPONSES_TOOL]),
        user(ASK),
        assistant("I need the weather.", "analysis"),
        called(CALL.arguments_json),
        returned("sunny"),
    )
    script("It is sunny.", times=2)
    stored = responses.create([output], previous_response_id=first.id, tools=[RESPONSES_TOOL])
    history = [{"role": "user", "content": ASK}, *[item.to_dict() for item in first.output], output]
    sent = responses.create(history, tools=[RESPONSES_TOOL])
    assert tokens_in(stored) == expected
    assert tokens_in(sent) == expected


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-041", "VR-061")
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "history sent"])
def test_thoughts_of_finished_turns_are_dropped(
    stored: bool, harmony: Any, responses: Responses, script: ScriptWriter
) -> None:
    """After a final answer, its reasoning is dropped; the current turn's reasoning stays (vllm#45048)."""
    script("Hello.", reasoning="A greeting, how nice.")
    first = responses.create("Hello!", tools=[RESPONSES_TOOL])
    history: list[Any] = [{"role": "user", "content": "Hello!"}, *[item.to_dict() for item in first.output]]
    script(reasoning="Now I need the weather.", calls=[CALL])
    question = {"role": "user", "content": ASK}
    second = (
        responses.create(ASK, previous_response_id=first.id, tools=[RESPONSES_TOOL])
        if stored
        else responses.create([*history, question], tools=[RESPONSES_TOOL])
    )
    head = (system(), developer(functions=[RESPONSES_TOOL]), user("Hello!"), assistant("Hello."), user(ASK))
    assert tokens_in(second) == prompt_tokens(harmony, *head)
    call = items(second, "function_call")[0]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    history += [question, *[item.to_dict() for item in second.output], output]
    script("It is sunny.")
    third = (
        responses.create([output], previous_response_id=second.id, tools=[RESPONSES_TOOL])
        if stored
        else responses.create(history, tools=[RESPONSES_TOOL])
    )
    kept = (
        assistant("Now I need the weather.", "analysis"),
        called(CALL.arguments_json),
        returned("sunny"),
    )
    assert tokens_in(third) == prompt_tokens(harmony, *head, *kept)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-061")
def test_preamble_of_the_history_keeps_its_channel(
    harmony: Any, responses: Responses, script: ScriptWriter
) -> None:
    """A preamble of a stored response stays in the commentary channel."""
    script(Meaning((Text("Let me look."), CALL)))
    first = responses.create(ASK, tools=[RESPONSES_TOOL])
    call = items(first, "function_call")[0]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    script("It is sunny.")
    second = responses.create([output], previous_response_id=first.id, tools=[RESPONSES_TOOL])
    expected = prompt_tokens(
        harmony,
        system(),
        developer(functions=[RESPONSES_TOOL]),
        user(ASK),
        assistant("Let me look.", "commentary"),
        called(CALL.arguments_json),
        returned("sunny"),
    )
    assert tokens_in(second) == expected


@pytest.mark.covers("VR-061")
@pytest.mark.parametrize(
    ("second", "outputs", "names"),
    [
        ("call_1", ["call_1"], ["functions.get_tides"]),
        ("call_2", ["call_1", "call_2"], ["functions.get_weather", "functions.get_tides"]),
    ],
    ids=["two calls share an id", "each its own"],
)
def test_output_belongs_to_the_latest_call_of_its_id(
    second: str, outputs: list[str], names: list[str], responses: Responses, script: ScriptWriter
) -> None:
    other = {**RESPONSES_TOOL, "name": "get_tides"}
    input_items = [
        {"role": "user", "content": ASK},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call", "call_id": second, "name": "get_tides", "arguments": "{}"},
        *({"type": "function_call_output", "call_id": call_id, "output": "high"} for call_id in outputs),
    ]
    script("High.")
    response = responses.create(input_items, tools=[RESPONSES_TOOL, other], extra_body=SHOW)
    said = messages_of(response)[-len(outputs) :]
    assert [role_of(output) for output in said] == ["tool"] * len(outputs)
    assert [output.get("author", output)["name"] for output in said] == names


@pytest.mark.covers("VR-062", "VR-061")
def test_each_part_of_the_thoughts_reaches_the_prompt(responses: Responses, script: ScriptWriter) -> None:
    script("Sunny.")
    parts = [{"type": "reasoning_text", "text": text} for text in ("I need the weather.", "So I look.")]
    input_items = [
        {"role": "user", "content": ASK},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": parts},
        {"type": "function_call", "call_id": "c1", "name": CALL.name, "arguments": CALL.arguments_json},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    ]
    prompt = prompt_of(responses.create(input_items, tools=[RESPONSES_TOOL], extra_body=SHOW))
    assert "I need the weather." in prompt
    assert "So I look." in prompt


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-038", "VR-048", "VR-008")
def test_output_messages_are_harmony(harmony: Any, responses: Responses, script: ScriptWriter) -> None:
    """The output messages in body and stream have the channels, recipients and texts of the model."""
    written = script(reasoning="I need the weather.", calls=[CALL], times=2)
    assert written is not None
    body, stream = responses.both(ASK, tools=[RESPONSES_TOOL], extra_body=SHOW)
    for response in (body, stream.terminal):
        messages = [message_of(value) for value in messages_of(response, "output")]
        assert [message.channel for message in messages] == ["analysis", "commentary"]
        assert [message.recipient for message in messages] == [None, "functions.get_weather"]
        assert [message.content[0].text for message in messages] == [  # type: ignore[union-attr]
            "I need the weather.",
            CALL.arguments_json,
        ]
        first = harmony.decode_utf8(harmony.render(messages[0]))
        assert first == "<|start|>assistant<|channel|>analysis<|message|>I need the weather.<|end|>"


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-038")
def test_streamed_messages_come_with_the_terminal_event(responses: Responses, script: ScriptWriter) -> None:
    script("Sunny.")
    stream = responses.stream(ASK, extra_body=SHOW)
    head: Any = stream.events[0]
    assert [head.response.model_extra[f"{side}_messages"] for side in ("input", "output")] == [None, None]
    assert len(messages_of(stream.terminal)) == 2
    assert len(messages_of(stream.terminal, "output")) == 1


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-049", "VR-048")
@pytest.mark.vllm_known_defect("shown-messages-lose-channel-and-recipient")
def test_round_trip_by_previous_input_messages(
    harmony: Any, responses: Responses, script: ScriptWriter
) -> None:
    """Sending the first turn's messages again, with a tool message, adds no system or developer message."""
    script(reasoning="I need the weather.", calls=[CALL])
    first = responses.create(ASK, tools=[RESPONSES_TOOL], extra_body=SHOW)
    tool_message = {
        "author": {"role": "tool", "name": "functions.get_weather"},
        "content": [{"type": "text", "text": "sunny"}],
        "channel": "commentary",
        "recipient": "assistant",
    }
    earlier = [*messages_of(first), *messages_of(first, "output"), tool_message]
    script("It is sunny.")
    second = responses.create(
        "", tools=[RESPONSES_TOOL], extra_body={**SHOW, "previous_input_messages": earlier}
    )
    roles = [role_of(message) for message in messages_of(second)]
    assert roles == ["system", "developer", "user", "assistant", "assistant", "tool"]
    expected = prompt_tokens(
        harmony,
        system(),
        developer(functions=[RESPONSES_TOOL]),
        user(ASK),
        assistant("I need the weather.", "analysis"),
        called(CALL.arguments_json),
        returned("sunny"),
    )
    assert tokens_in(second) == expected
    assert second.output_text == "It is sunny."


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-049")
def test_previous_messages_in_the_form_of_harmony(
    harmony: Any, responses: Responses, script: ScriptWriter
) -> None:
    """Previous messages keep author, channel and recipient, except for system and developer messages."""
    turn = (
        assistant("I need the weather.", "analysis"),
        called(CALL.arguments_json),
        returned("sunny"),
    )
    earlier = [_own_form(message) for message in (system(HIGH), developer("Rhyme."), user(ASK), *turn)]
    script("It is sunny.")
    response = responses.create(
        "", tools=[RESPONSES_TOOL], extra_body={**SHOW, "previous_input_messages": earlier}
    )
    head = (system(), developer(functions=[RESPONSES_TOOL]), user(ASK))
    assert tokens_in(response) == prompt_tokens(harmony, *head, *turn)


def _own_form(message: Any) -> dict[str, Any]:
    """A message as a dict with the fields of openai-harmony's message class."""
    shown = message.to_dict()
    author = {"role": shown.pop("role"), "name": shown.pop("name", None)}
    return {"author": author, **shown}


@pytest.mark.covers("VR-049")
def test_previous_message_without_a_role_is_refused(responses: Responses) -> None:
    answer = responses.post(
        {"model": responses.model, "input": ASK, "previous_input_messages": [{"content": "Hi."}]}
    )
    assert answer.status_code == 400
    assert "role" in answer.json()["error"]["message"]


@pytest.mark.covers("VR-049")
def test_two_kinds_of_history_are_refused(responses: Responses, script: ScriptWriter) -> None:
    script("Hello.")
    first = responses.create("Hello!", extra_body=SHOW)
    answer = responses.post(
        {
            "model": responses.model,
            "input": ASK,
            "previous_response_id": first.id,
            "previous_input_messages": messages_of(first),
        }
    )
    assert answer.status_code == 400
    assert "Only one of `previous_input_messages`" in answer.json()["error"]["message"]
