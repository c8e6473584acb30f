"""Harmony output over Chat Completions: channels, recipients, several messages, malformed output."""

from __future__ import annotations

import re
from typing import Any

import openai
import pytest

from tests.case_files import cases
from tests.chat_api import FREE, NOW, WEATHER, Chat, output_of, streamed
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_harmony, pytest.mark.vllm_scripted]

CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}'
NEXT = "<|start|>assistant"
# the tokens that end a turn must not appear as text
ENDS = ("<|return|>", "<|call|>", "<|endoftext|>")


@pytest.mark.parametrize("case", cases("chat_harmony"))
def test_output(case: dict[str, Any], chat: Chat, script: ScriptWriter) -> None:
    """Each part of the output is in the right field, both in the body and in the stream."""
    script(Raw(case["raw"]), times=2)
    answers = chat.both(tools=[FREE, NOW])
    expected = (case.get("content", ""), case.get("reasoning", ""), case.get("calls", []))
    calls = [[name, arguments] for name, arguments in answers.output.calls]
    assert (answers.output.content, answers.output.reasoning, calls) == expected
    assert answers.output.finish == ("tool_calls" if calls else "stop")


@pytest.mark.covers("VT-015", "VC-020")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_no_message_of_several_is_lost(stream: bool, chat: Chat, script: ScriptWriter) -> None:
    """All messages are in the answer, in the right order; the white space between them may differ."""
    said = (("analysis", "Clouds."), ("commentary", "First."), ("analysis", "Wind."), ("final", "Then."))
    script(
        Raw(f"<|end|>{NEXT}".join(f"<|channel|>{where}<|message|>{text}" for where, text in said) + ENDS[0])
    )
    output = streamed(chat.stream()) if stream else output_of(chat.body())
    assert re.fullmatch(r"First\.\s*Then\.", output.content)
    assert re.fullmatch(r"Clouds\.\s*Wind\.", output.reasoning)


@pytest.mark.parametrize("case", cases("chat_harmony_broken"))
def test_broken_output(case: dict[str, Any], chat: Chat, script: ScriptWriter) -> None:
    """Malformed output causes no 5xx and no hang, loses no text, and is the same in body and stream."""
    script(Raw(case["raw"]), times=2)
    answers = chat.both(tools=[FREE])
    generated = answers.output.content + answers.output.reasoning + str(answers.output.calls)
    assert all(text in generated for text in case["keeps"]), generated
    assert not any(end in generated for end in ENDS), generated
    script("Served.")
    assert chat.body().choices[0].message.content == "Served."


@pytest.mark.covers("VT-015", "VC-020")
@pytest.mark.parametrize("tokens", [1, 5, 1000])
def test_two_calls_of_one_function(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    second = CALL.replace("Paris", "Rome")
    script(Raw(f"{CALL}<|end|>{NEXT}{second}<|call|>"), times=2)
    answers = chat.both(tools=[FREE], stream_interval=tokens)
    assert answers.output.arguments == [{"city": "Paris"}, {"city": "Rome"}]
    assert answers.output.finish == "tool_calls"


@pytest.mark.covers("VT-007", "VT-010", "CO-09")
def test_second_call_is_forbidden_where_one_is_allowed(chat: Chat, script: ScriptWriter) -> None:
    """With `parallel_tool_calls: false`, the grammar ends the turn after the first call."""
    second = CALL.replace("Paris", "Rome")
    script(Raw(f"{CALL}<|end|>{NEXT}{second}<|call|>"), expect="refused")
    with pytest.raises(openai.APIError, match="was refused at token"):
        chat.body(tools=[WEATHER], parallel_tool_calls=False)


@pytest.mark.covers("VT-007", "VC-015")
@pytest.mark.parametrize("more", [" And more.", "<|call|>"], ids=["text", "its end, spelled"])
def test_nothing_follows_a_forced_call(more: str, chat: Chat, script: ScriptWriter) -> None:
    """After a forced call, the grammar refuses text, even the letters of the token that ends the call."""
    letters = [token for letter in more for token in chat.tokens(letter)]
    script([*chat.tokens(CALL), *letters, *chat.tokens("<|call|>")], expect="refused")
    with pytest.raises(openai.APIError, match="was refused at token"):
        chat.body(tools=[WEATHER], tool_choice="required")


@pytest.mark.covers("VC-032", "VT-015")
def test_role_and_markup_are_in_no_field(chat: Chat, script: ScriptWriter) -> None:
    script("Rain.", reasoning="Clouds.", times=2)
    answers = chat.both()
    for output in (output_of(answers.body), streamed(answers.chunks)):
        assert "<|" not in output.content + output.reasoning
        assert (output.content, output.reasoning) == ("Rain.", "Clouds.")


@pytest.mark.covers("VC-022", "VR-061")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_thoughts_stay_out_of_what_a_cut_header_leaves(
    budget: int, stream: bool, chat: Chat, script: ScriptWriter
) -> None:
    """The remains of a truncated header may appear as content, but the reasoning before it may not."""
    thoughts = "<|channel|>analysis<|message|>Clouds, so rain.<|end|>"
    script(Raw(f"{thoughts}{NEXT}<|channel|>final<|message|>Rain.<|return|>"), expect="cut")
    limit = {"max_tokens": len(chat.tokens(thoughts + NEXT)) + budget}
    said = streamed(chat.stream(**limit)) if stream else output_of(chat.body(**limit))
    assert said.reasoning == "Clouds, so rain."
    assert "Clouds" not in said.content
