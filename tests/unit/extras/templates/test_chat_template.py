"""Templates are rendered as transformers and vLLM render them."""

from __future__ import annotations

import pytest

from vllm_harness.extras.templates.chat_template import (
    ChatTemplateError,
    JinjaTemplate,
    with_json_arguments,
    with_thinking_part,
)

CALLS = [{"id": "call00000", "function": {"name": "f", "arguments": {"city": "Zürich"}}}]


def test_json_is_written_without_escapes() -> None:
    template = JinjaTemplate("{{ messages[0].content | tojson }}")
    assert template([{"content": "<é>"}], [], generate=True) == '"<é>"'


def test_the_sandbox_refuses_a_change_of_a_list() -> None:
    source = "{% set _ = messages.append(1) %}{{ messages | length }}"
    with pytest.raises(ChatTemplateError, match="append"):
        JinjaTemplate(source)([], [], generate=True)
    assert JinjaTemplate(source, mutable=True)([], [], generate=True) == "1"


def test_marks_of_training_change_nothing() -> None:
    template = JinjaTemplate("a{% generation %}b{% endgeneration %}c")
    assert template([], [], generate=True) == "abc"


def test_a_position_has_the_line_that_writes_it() -> None:
    template = JinjaTemplate(
        "{{ 'ab' }}\n{%- for message in messages %}\n{{- message.content }}\n{%- endfor %}"
    )
    messages = [{"content": "cd"}, {"content": "ef"}]
    assert template(messages, [], generate=True) == "abcdef"
    assert [template.line_at(messages, [], at) for at in (0, 1, 2, 5)] == [1, 1, 3, 3]


def test_arguments_are_given_as_json_and_reasoning_as_a_part() -> None:
    message = {"role": "assistant", "content": "Hi.", "reasoning": "Hm.", "tool_calls": CALLS}
    assert with_json_arguments(message)["tool_calls"][0]["function"]["arguments"] == '{"city": "Zürich"}'
    assert with_thinking_part(message)["content"] == [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Hi."},
    ]
    assert with_thinking_part({"role": "user", "content": "Hi."}) == {"role": "user", "content": "Hi."}
