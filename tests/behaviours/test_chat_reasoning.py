"""Reasoning over Chat Completions: separate from the answer, counted, hidden, truncated, switched off."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.chat_api import ASK, CUTS, FREE, HISTORY, PARIS, Chat, streamed
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("reasoning")]

THOUGHT = "The user wants rain. There is rain."
ANSWER = "It rains."


def reasoning_tokens(usage: Any) -> int:
    """Returns the number of reasoning tokens in the usage."""
    assert usage is not None
    assert usage.completion_tokens_details is not None
    return int(usage.completion_tokens_details.reasoning_tokens)


@pytest.mark.covers("VC-013", "VT-016", "VC-025")
@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 8, 1000])
def test_reasoning_is_kept_apart(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    """One delta may have both the reasoning's end and the answer's start (vllm#42691: one was lost)."""
    script(ANSWER, reasoning=THOUGHT, times=2)
    answers = chat.both(stream_interval=tokens)
    assert answers.output.reasoning.strip() == THOUGHT
    assert answers.output.content.strip() == ANSWER
    assert reasoning_tokens(answers.body.usage) == reasoning_tokens(answers.chunks[-1].usage)


@pytest.mark.covers("VC-013", "VC-025", "VT-015")
def test_reasoning_tokens_are_counted(chat: Chat, script: ScriptWriter) -> None:
    """The count equals the tokens of the reasoning, apart from markup and surrounding newlines."""
    script(ANSWER, reasoning=THOUGHT, times=2)
    script(ANSWER, times=2)
    thought = reasoning_tokens(chat.both().body.usage)
    least = len(chat.tokens(THOUGHT))
    assert least <= thought <= least + 2
    assert reasoning_tokens(chat.both().body.usage) <= 2


@pytest.mark.covers("VC-013", "VT-016")
def test_hidden_reasoning(chat: Chat, script: ScriptWriter) -> None:
    """With include_reasoning false only the answer is returned, but reasoning tokens are still counted."""
    script(ANSWER, reasoning=THOUGHT, times=2)
    answers = chat.both(include_reasoning=False)
    assert answers.output.reasoning == ""
    assert answers.output.content.strip() == ANSWER
    assert answers.output.finish == "stop"
    assert reasoning_tokens(answers.body.usage) > 0
    assert reasoning_tokens(answers.body.usage) == reasoning_tokens(answers.chunks[-1].usage)


@pytest.mark.covers("VC-013", "VT-016", "VC-043")
def test_hidden_reasoning_does_not_leak_by_the_side(chat: Chat, script: ScriptWriter) -> None:
    """Neither logprobs nor token ids reveal the hidden reasoning."""
    script(ANSWER, reasoning="secret plan", times=2)
    answers = chat.both(include_reasoning=False, logprobs=True, return_token_ids=True)
    payload = answers.body.model_dump_json() + "".join(chunk.model_dump_json() for chunk in answers.chunks)
    ids = [answers.body.choices[0].token_ids or []]  # type: ignore[attr-defined]
    ids += [getattr(c, "token_ids", None) or [] for chunk in answers.chunks for c in chunk.choices]
    assert "secret" not in payload
    assert all("secret" not in chat.text(part) for part in ids if part)


@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-013", "VC-022")
def test_hidden_reasoning_before_a_call(chat: Chat, script: ScriptWriter) -> None:
    script(reasoning=THOUGHT, calls=[PARIS], constrained=True, times=2)
    answers = chat.both(tools=[FREE], include_reasoning=False)
    assert answers.output.reasoning == ""
    assert answers.output.arguments == [PARIS.arguments]
    assert answers.output.finish == "tool_calls"


@pytest.mark.covers("VC-020", "VT-015", "VT-016")
@pytest.mark.parametrize("stream_interval", [1, 1000])
def test_reasoning_cut_by_the_limit(stream_interval: int, chat: Chat, script: ScriptWriter) -> None:
    """Reasoning that does not end stays reasoning: none of it becomes content."""
    script(ANSWER, reasoning=THOUGHT, times=2, expect="truncated")
    answers = chat.both(max_tokens=8, stream_interval=stream_interval)
    assert answers.output.finish == "length"
    assert answers.output.content == ""
    assert answers.output.reasoning.strip()
    assert THOUGHT.startswith(answers.output.reasoning.strip())


@pytest.mark.covers("VC-020", "VR-050")
def test_answer_cut_by_the_limit(chat: Chat, script: ScriptWriter) -> None:
    """If the limit truncates the answer, content is the generated part, not null."""
    text = "one two three four five six seven eight nine ten"
    ids = script(text, reasoning=THOUGHT, times=2, expect="truncated")
    assert ids is not None
    answers = chat.both(max_tokens=len(ids.takes[0]) - 5)
    assert answers.output.finish == "length"
    assert answers.output.reasoning.strip() == THOUGHT
    assert answers.output.content.strip()
    assert text.startswith(answers.output.content.strip())


@pytest.mark.covers("VC-022", "VT-009")
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_goes_back_under_either_name(field: str, chat: Chat, script: ScriptWriter) -> None:
    """Reasoning before a call belongs to the current turn, so the prompt keeps it."""
    script("Rain.")
    call = {**HISTORY[1], field: "marker thought 77"}
    prompt = chat.prompt([*ASK, call, HISTORY[2]], tools=[FREE])
    assert prompt.count("marker thought 77") == 1
    assert prompt.index("marker thought 77") < prompt.index("98 percent humid")


@pytest.mark.covers("VT-009")
def test_the_new_name_wins(chat: Chat, script: ScriptWriter) -> None:
    script("Rain.")
    call = {**HISTORY[1], "reasoning": "marker new 1", "reasoning_content": "marker old 2"}
    prompt = chat.prompt([*ASK, call, HISTORY[2]], tools=[FREE])
    assert "marker new 1" in prompt
    assert "marker old 2" not in prompt


@pytest.mark.covers("VC-022", "VT-016")
def test_reasoning_of_a_finished_turn_is_dropped(chat: Chat, script: ScriptWriter) -> None:
    script("Rain.")
    prompt = chat.prompt(
        [
            *ASK,
            {"role": "assistant", "reasoning": "marker thought 77", "content": "Sun."},
            {"role": "user", "content": "And now?"},
        ]
    )
    assert "Sun." in prompt
    assert "marker thought 77" not in prompt


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VT-016", "VC-014")
@pytest.mark.parametrize(
    "off",
    [
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}},
    ],
    ids=["template", "effort", "template beats effort"],
)
def test_reasoning_switched_off(off: dict[str, Any], chat: Chat, script: ScriptWriter) -> None:
    """The prompt itself closes the reasoning (vllm#40466: the whole stream came as reasoning)."""
    script(Raw("It rains.<|im_end|>"), times=3)
    answers = chat.both(**off)
    assert answers.output.content == "It rains."
    assert answers.output.reasoning == ""
    assert reasoning_tokens(answers.body.usage) == reasoning_tokens(answers.chunks[-1].usage) == 0
    assert chat.prompt(ASK, **off).endswith("</think>\n\n")


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VT-016", "VC-015")
def test_call_with_reasoning_switched_off(chat: Chat, script: ScriptWriter) -> None:
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>'
    script(Raw(text), times=2)
    answers = chat.both(tools=[FREE], chat_template_kwargs={"enable_thinking": False})
    assert answers.output.arguments == [{"city": "Rome"}]
    assert answers.output.content == answers.output.reasoning == ""


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VT-016", "VC-024")
@pytest.mark.parametrize("stop", [["nowhere to be seen"], ["</thing>"]], ids=["far", "near"])
@pytest.mark.parametrize("tokens", [1, 3, 6])
def test_reasoning_with_a_stop_string(stop: list[str], tokens: int, chat: Chat, script: ScriptWriter) -> None:
    """With `stop`, reasoning stays reasoning (vllm#51641: text is held back but its token ids are not).

    The usage of such a stream depends on how its tokens are grouped (test_chat_stop.py).
    """
    script(ANSWER, reasoning=THOUGHT)
    answer = streamed(chat.stream(stop=stop, stream_interval=tokens))
    assert answer.reasoning.strip() == THOUGHT
    assert answer.content.strip() == ANSWER


@pytest.mark.covers("VC-014")
@pytest.mark.parametrize("budget", [-2, "many", 1.5])
def test_wrong_thinking_budget(budget: Any, chat: Chat) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat.body(thinking_token_budget=budget)
    assert "thinking_token_budget" in str(caught.value)


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-014")
@pytest.mark.parametrize("budget", [1, 5, 12])
@pytest.mark.parametrize(
    "end",
    [
        "",
        pytest.param(
            "</think>\n\n",
            marks=pytest.mark.vllm_known_defect("second-end-thoughts"),
        ),
    ],
    ids=["open", "ended again"],
)
def test_thinking_budget(end: str, budget: int, chat: Chat, script: ScriptWriter) -> None:
    """Reasoning ends at the budget even if the model would continue, whatever the chunk length."""
    thought = " ".join(f"thought{number}" for number in range(20))
    script(Raw(f"<think>\n{thought}\n{end}Rain.<|im_end|>"), times=2 * len(CUTS))
    for answers in chat.both_of_each(
        [{"thinking_token_budget": budget, "stream_interval": tokens} for tokens in CUTS]
    ):
        assert reasoning_tokens(answers.body.usage) == budget
        assert answers.output.content.endswith("Rain.")
        assert len(answers.output.reasoning) < len(thought) / 2


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-014")
@pytest.mark.parametrize("budget", [-1, 500, None])
def test_budget_that_is_not_reached(budget: int | None, chat: Chat, script: ScriptWriter) -> None:
    script(ANSWER, reasoning=THOUGHT, times=2)
    answers = chat.both(thinking_token_budget=budget)
    assert answers.output.reasoning.strip() == THOUGHT
    assert answers.output.content.strip() == ANSWER
