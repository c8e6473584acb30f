"""Several choices for one request: the index, text, calls and reasoning of each choice, and the usage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chat_api import FREE, Answers, Chat, output_of, streamed
from vllm_harness._scripted.meaning import Meaning, Reasoning, Text, ToolCall
from vllm_harness._testing.fixtures import ScriptWriter
from vllm_harness._testing.skips import NOT_SERVED, skip


@pytest.fixture
def many(chat: Chat) -> Chat:
    """Chat on a front end that accepts n > 1; skips the test on others."""
    if chat.rust:
        skip(NOT_SERVED, "the Rust front end says: Only n=1 is supported.")
    return chat


def by_choice(answers: Answers, number: int) -> list[Any]:
    """Returns the content of each choice in the body, after checking that the stream has the same."""
    assert [choice.index for choice in answers.body.choices] == list(range(number))
    bodies = [output_of(answers.body, choice) for choice in range(number)]
    assert [streamed(answers.chunks, choice) for choice in range(number)] == bodies
    return bodies


@pytest.mark.covers("VC-010")
def test_choices(many: Chat, script: ScriptWriter) -> None:
    script(choices=["First it is.", "The second.", "And a third."], times=2)
    answers = many.both(n=3, temperature=0.9, seed=5, max_tokens=20)
    bodies = by_choice(answers, 3)
    if script.exact:
        assert [body.content.strip() for body in bodies] == ["First it is.", "The second.", "And a third."]
    assert len({body.content for body in bodies}) == 3
    usage = answers.body.usage
    assert usage is not None
    assert usage.completion_tokens <= 60
    assert answers.chunks[-1].usage is not None
    assert answers.chunks[-1].usage.completion_tokens == usage.completion_tokens


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-010")
def test_usage_is_of_all_choices(many: Chat, script: ScriptWriter) -> None:
    """Usage counts the prompt once and the tokens of all choices."""
    written = script(choices=["One.", "Two of them, and longer."], times=2)
    assert written is not None
    answers = many.both(n=2, temperature=1, return_token_ids=True)
    usage = answers.body.usage
    assert usage is not None
    assert usage.completion_tokens == sum(len(take) for take in written.takes)
    assert usage.prompt_tokens == len(answers.body.prompt_token_ids)  # type: ignore[attr-defined]
    ids = [choice.token_ids for choice in answers.body.choices]  # type: ignore[attr-defined]
    assert ids == [list(take) for take in written.takes]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-010", "VC-004")
def test_usage_on_the_way_is_that_of_the_choice_of_the_chunk(many: Chat, script: ScriptWriter) -> None:
    """With vLLM's own `continuous_usage_stats`, a chunk's usage counts the tokens of the chunk's choice."""
    written = script(choices=["One.", "Two of them, and longer."])
    assert written is not None
    options = {"include_usage": True, "continuous_usage_stats": True}
    last: dict[int, int] = {}
    for chunk in many.stream(n=2, temperature=1, stream_options=options):
        for choice in chunk.choices:
            assert chunk.usage is not None
            last[choice.index] = chunk.usage.completion_tokens
    assert last == {index: len(take) for index, take in enumerate(written.takes)}


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-010")
def test_choices_of_different_length(many: Chat, script: ScriptWriter) -> None:
    """A short choice ends early, and the longer one continues."""
    long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    script(choices=["Short.", long], times=2, expect="done")
    answers = many.both(n=2, temperature=1)
    bodies = by_choice(answers, 2)
    assert [body.content.strip() for body in bodies] == ["Short.", long]
    assert [body.finish for body in bodies] == ["stop", "stop"]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "parallel_tools")
@pytest.mark.covers("VC-023", "VT-015")
def test_calls_of_each_choice(many: Chat, script: ScriptWriter) -> None:
    """Each choice has its own parser: indices start at 0, and all ids differ.

    A choice without a call does not get another choice's call, whichever of the two choices ends first.
    """
    calls = [ToolCall("get_weather", {"city": city}) for city in ("Paris", "Rome", "Zürich")]
    texts = ("None.", " and".join(["None"] * 60))
    says = [(calls[0],), (calls[1], calls[2]), *((Text(text),) for text in texts)]
    script(choices=list(map(Meaning, says)), constrained=True, times=2)
    answers = many.both(n=4, temperature=1, tools=[FREE])
    bodies = by_choice(answers, 4)
    assert [[a["city"] for a in body.arguments] for body in bodies] == [["Paris"], ["Rome", "Zürich"], [], []]
    assert [body.finish for body in bodies] == ["tool_calls", "tool_calls", "stop", "stop"]
    ids = [call.id for choice in answers.body.choices for call in choice.message.tool_calls or []]
    assert len(set(ids)) == 3


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-023", "VT-015")
def test_one_call_in_each_choice(many: Chat, script: ScriptWriter) -> None:
    calls = [ToolCall("get_weather", {"city": city}) for city in ("Paris", "Rome")]
    script(choices=[Meaning((call,)) for call in calls], constrained=True, times=2)
    bodies = by_choice(many.both(n=2, temperature=1, tools=[FREE]), 2)
    assert [body.arguments for body in bodies] == [[call.arguments] for call in calls]
    assert [body.finish for body in bodies] == ["tool_calls"] * 2


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VC-023", "VC-025")
def test_reasoning_of_each_choice(many: Chat, script: ScriptWriter) -> None:
    script(
        choices=[Meaning((Reasoning("Thought one."), Text("A."))), Meaning((Reasoning("Two."), Text("B.")))],
        times=2,
    )
    answers = many.both(n=2, temperature=1)
    bodies = by_choice(answers, 2)
    assert [body.reasoning.strip() for body in bodies] == ["Thought one.", "Two."]
    assert [body.content.strip() for body in bodies] == ["A.", "B."]
    usages = [answers.body.usage, answers.chunks[-1].usage]
    details = [usage.completion_tokens_details for usage in usages if usage]
    counts = [each.reasoning_tokens or 0 for each in details if each]
    assert counts[0] == counts[1] > 2


@pytest.mark.covers("VC-010")
@pytest.mark.parametrize("number", [0, -1, 16385, "two"])
def test_wrong_number_of_choices(number: Any, chat: Chat) -> None:
    chat.refused({"n": number, "temperature": 1, "max_tokens": 5}, r"\bn\b|n=|integer")


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-010")
@pytest.mark.vllm_known_defect("several-choices-at-temperature-0")
def test_choices_at_temperature_0(many: Chat, script: ScriptWriter) -> None:
    script(choices=["Same.", "Same."], times=2)
    assert [body.content.strip() for body in by_choice(many.both(n=2), 2)] == ["Same.", "Same."]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-010")
@pytest.mark.parametrize("seed", [None, 11])
def test_null_means_one_choice(seed: int | None, chat: Chat, script: ScriptWriter) -> None:
    script("One.")
    body = chat.body(n=None, seed=seed, temperature=1)
    assert [choice.index for choice in body.choices] == [0]
