"""Thinking and structured output over Anthropic Messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.behaviours.tools import CALL, WEATHER
from tests.messages_api import TOOL, Messages, kinds, text_of
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_needs("messages")

FRANCE = "What is the capital of France?"
PARIS = "Paris."
THOUGHT = "The user asks for a capital."
CITY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "population": {"type": "integer"}},
    "required": ["name", "population"],
    "additionalProperties": False,
}
BUDGET = {"type": "enabled", "budget_tokens": 1024}
FIELDS = {
    "thinking": {"type", "thinking", "signature"},
    "text": {"type", "text", "citations"},
    "tool_use": {"type", "id", "name", "input", "caller"},
}
"""The fields of each type of Anthropic's content blocks."""
CONFIGS = [None, {"type": "adaptive"}, {"type": "adaptive", "display": "summarized"}]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VA-010", "VA-021", "VA-024")
@pytest.mark.parametrize("config", CONFIGS, ids=["absent", "adaptive", "summarized"])
def test_thinking_comes_first(config: Any, messages: Messages, script: ScriptWriter) -> None:
    script(PARIS, reasoning=THOUGHT, times=2)
    more = {} if config is None else {"thinking": config}
    body, stream = messages.both(FRANCE, max_tokens=2000, **more)
    assert kinds(body) == ["thinking", "text"]
    thinking = body.content[0]
    assert thinking.type == "thinking"
    assert thinking.thinking.strip() == THOUGHT
    assert thinking.signature
    assert text_of(body) == PARIS
    assert stream.message["content"][0]["signature"]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning", "tools")
@pytest.mark.covers("VA-010", "VA-024")
@pytest.mark.parametrize("calls", [[], [CALL]], ids=["text", "call"])
def test_message_has_no_field_of_vllm(calls: Any, messages: Messages, script: ScriptWriter) -> None:
    """A message has only Anthropic's fields, and a block only those of its type; others are not even null."""
    script(None if calls else PARIS, reasoning=THOUGHT, calls=calls, constrained=bool(calls), times=2)
    body, stream = messages.both(WEATHER, tools=[{**TOOL, "strict": False}])
    start = stream.of("message_start")[0]["message"]
    assert {*body.to_dict(), *start} <= type(body).model_fields.keys()
    blocks = [block.to_dict() for block in body.content]
    assert len(blocks) == 2
    for block in [*blocks, *(event["content_block"] for event in stream.of("content_block_start"))]:
        assert block.keys() <= FIELDS[str(block["type"])]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VA-021")
@pytest.mark.vllm_known_defect("thinking-with-budget-on-harmony")
def test_thinking_with_a_budget(messages: Messages, script: ScriptWriter) -> None:
    script(PARIS, reasoning=THOUGHT)
    answer = messages.post(messages.request(FRANCE, {"max_tokens": 2000, "thinking": BUDGET}))
    assert answer.status_code == 200, answer.text
    assert [block["type"] for block in answer.json()["content"]] == ["thinking", "text"]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning", "tools")
@pytest.mark.covers("VA-010", "VA-024")
def test_thinking_then_call(messages: Messages, script: ScriptWriter) -> None:
    script(reasoning=THOUGHT, calls=[CALL], constrained=True, times=2)
    body, _ = messages.both(WEATHER, tools=[{**TOOL, "strict": False}])
    assert kinds(body) == ["thinking", "tool_use"]
    assert body.stop_reason == "tool_use"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VA-021", "VA-024")
def test_limit_within_the_thoughts(messages: Messages, script: ScriptWriter) -> None:
    script(PARIS, reasoning="one two three four five six seven eight nine ten", expect="truncated", times=2)
    body, _ = messages.both(FRANCE, max_tokens=9)
    assert kinds(body) == ["thinking"]
    assert body.stop_reason == "max_tokens"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VA-021")
def test_thinking_disabled_is_counted(messages: Messages, script: ScriptWriter) -> None:
    """count_tokens also respects disabled thinking; the prompt itself is checked in cases/prompts.yaml."""
    disabled = {"thinking": {"type": "disabled"}}
    # if the prompt has already closed the reasoning, the model does not open it again
    script(Raw(f"{PARIS}<|im_end|>") if messages.model == "qwen3" else PARIS)
    message = messages.create(FRANCE, **disabled)
    assert text_of(message) == PARIS
    assert message.usage.input_tokens == messages.count(FRANCE, **disabled)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VA-021")
@pytest.mark.parametrize(
    "more",
    [
        {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
    ids=["disabled beside an effort", "template's arguments"],
)
def test_thinking_is_off_and_counted(more: dict[str, Any], messages: Messages, script: ScriptWriter) -> None:
    """If thinking is off, the prompt closes the reasoning, and count_tokens counts that prompt."""
    script(Raw(f"{PARIS}<|im_end|>"))
    message = messages.create(FRANCE, **more)
    assert kinds(message) == ["text"]
    off = messages.count(FRANCE, thinking={"type": "disabled"})
    assert message.usage.input_tokens == off == messages.count(FRANCE, **more) > messages.count(FRANCE)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-021")
@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_effort_is_accepted(effort: str, messages: Messages, script: ScriptWriter) -> None:
    script(PARIS)
    config = {"effort": effort}
    message = messages.create(FRANCE, output_config=config)
    assert message.usage.input_tokens == messages.count(FRANCE, output_config=config)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-010")
@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"}, {"type": "text", "text": PARIS}],
        [{"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"}],
        [{"type": "redacted_thinking", "data": "b3BhcXVl"}, {"type": "text", "text": PARIS}],
        [
            {"type": "thinking", "thinking": "First.", "signature": "c2ln"},
            {"type": "thinking", "thinking": "Then.", "signature": "c2ln"},
            {"type": "text", "text": PARIS},
        ],
    ],
    ids=["with text", "alone", "redacted", "several"],
)
def test_thinking_in_the_history_is_accepted(
    blocks: list[Any], messages: Messages, script: ScriptWriter
) -> None:
    script("Rome.")
    conversation = [
        {"role": "user", "content": FRANCE},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": "And of Italy?"},
    ]
    assert text_of(messages.create(conversation)) == "Rome."


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-021")
def test_payload_of_claude_code(messages: Messages, script: ScriptWriter) -> None:
    """The server ignores fields that agents such as Claude Code send but a local server does not use."""
    script(PARIS, times=2)
    body, _ = messages.both(
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": FRANCE, "cache_control": {"type": "ephemeral"}}],
            }
        ],
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        metadata={"user_id": "user_1"},
        thinking={"type": "adaptive"},
        tools=[{**TOOL, "strict": False, "cache_control": {"type": "ephemeral"}}],
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        extra_headers={"anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14"},
    )
    assert text_of(body) == PARIS


@pytest.mark.vllm_needs("structured_output")
@pytest.mark.vllm_model("qwen3", "llama3.1", "smollm2-135m")
@pytest.mark.covers("VA-005")
def test_structured_output(messages: Messages, script: ScriptWriter) -> None:
    script('{"name": "Paris", "population": 2100000}', constrained=True, times=2)
    config = {"format": {"type": "json_schema", "schema": CITY}}
    body, _ = messages.both("A city, as JSON", output_config=config)
    if body.stop_reason == "end_turn":
        assert set(json.loads(text_of(body))) == {"name", "population"}
    if script.exact:
        assert json.loads(text_of(body)) == {"name": "Paris", "population": 2100000}
