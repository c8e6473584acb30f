"""Basics of Chat Completions: an answer, its length limit, and a call, each streamed and not."""

from __future__ import annotations

import pytest

from tests.chat_api import Chat, output_of
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

PARIS = "The capital of France is Paris."
FRANCE = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]


@pytest.mark.covers("VC-034")
def test_chat_answer(chat: Chat, script: ScriptWriter) -> None:
    script(PARIS, times=2)
    answers = chat.both(FRANCE)
    assert answers.output.finish == "stop"
    assert "tool_calls" not in answers.body.choices[0].message.model_fields_set, (
        "left out where there are none"
    )
    last = answers.chunks[-1]
    assert last.usage is not None
    assert answers.body.usage is not None
    assert last.usage.completion_tokens == answers.body.usage.completion_tokens
    expect_content("Paris" in answers.output.content, f"Paris, not {answers.output.content!r}")


@pytest.mark.covers("VR-050")
def test_chat_length_limit(chat: Chat, script: ScriptWriter) -> None:
    script("one two three four five six seven eight nine ten eleven twelve", expect="truncated")
    body = chat.body(FRANCE, max_tokens=4)
    assert output_of(body).finish == "length"
    assert body.usage is not None
    assert body.usage.completion_tokens == 4
