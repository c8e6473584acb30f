"""What chat clients get for tool calls in a family's native format, well-formed or malformed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.case_files import cases
from tests.chat_api import ASK, FREE, NOW, Chat
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_scripted]

OFF: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}


def check(case: dict[str, Any], chat: Chat, script: ScriptWriter, **request: Any) -> None:
    """Scripts the raw text of a case, and compares the answers with the expected answer."""
    script(Raw(case["raw"]), times=2)
    answers = chat.both(tools=[FREE, NOW], stream_interval=case.get("tokens", 1), **request)
    calls = [[name, arguments] for name, arguments in answers.output.calls]
    assert calls == case.get("calls", [])
    assert answers.output.content.strip() == case.get("content", "")
    assert answers.output.finish == ("tool_calls" if calls else "stop")


@pytest.mark.vllm_model("qwen3")
@pytest.mark.parametrize("case", cases("chat_raw_calls", "hermes"))
def test_hermes(case: dict[str, Any], chat: Chat, script: ScriptWriter) -> None:
    """Thinking is disabled, so the tool parser gets the whole text."""
    check(case, chat, script, **OFF)


@pytest.mark.vllm_model("llama3.1")
@pytest.mark.parametrize("case", cases("chat_raw_calls", "llama"))
def test_llama(case: dict[str, Any], chat: Chat, script: ScriptWriter) -> None:
    check(case, chat, script)


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VT-014")
@pytest.mark.parametrize("cut", [1, 2, 5, 9])
@pytest.mark.vllm_known_defect("vllm-47903")
def test_opener_cut_by_the_limit(cut: int, chat: Chat, script: ScriptWriter) -> None:
    """A truncated start of a call appears as text neither in the body nor in the stream."""
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>'
    script(Raw(text), times=2, expect="cut")
    answers = chat.both(ASK, tools=[FREE], max_tokens=cut, **OFF)
    assert answers.output.finish == "length"
    assert "tool_call" not in answers.output.content + answers.streamed.content


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VT-016", "VC-015")
def test_call_within_the_thoughts(chat: Chat, script: ScriptWriter) -> None:
    """A call ends the reasoning even if the reasoning's end marker is missing."""
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    script(Raw(f"<think>\nWhat time is it? {call}<|im_end|>"), times=2)
    answers = chat.both(tools=[NOW])
    assert answers.output.calls == (("now", "{}"),)
    assert answers.output.reasoning.strip() == "What time is it?"


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VT-016")
@pytest.mark.parametrize("tokens", [1, 4, 1000])
def test_markup_quoted_in_the_thoughts(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    """The markup of a call within the reasoning is not parsed as a call."""
    thought = 'I could write <function=now> or {"name": "now"}, but no.'
    script("It is noon.", reasoning=thought, times=2)
    answers = chat.both(tools=[NOW], stream_interval=tokens)
    assert answers.output.calls == ()
    assert answers.output.reasoning.strip() == thought
    assert answers.output.content.strip() == "It is noon."
