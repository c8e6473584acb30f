"""The harness's chat templates write past turns exactly as their dialects render new turns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vllm_harness._configuration.model_entries import TEMPLATES
from vllm_harness._scripted.dialects import render
from vllm_harness._scripted.meaning import Meaning, ToolCall

ARGUMENTS = {"city": "Paris", "note": 'a "quoted" word'}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Weather in Paris?"}
RESULT = {"role": "tool", "content": '{"sky": "clear"}', "tool_call_id": "1"}
DEFAULT_SYSTEM = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
)


def past_call(content: str | None = None, calls: int = 1) -> dict[str, Any]:
    call = {"type": "function", "id": "1", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
    return {"role": "assistant", "content": content, "tool_calls": [call] * calls}


def prompt(template: str, messages: list[dict[str, Any]], **variables: Any) -> str:
    """Renders a template as transformers does: sandboxed, trimmed, and without HTML escapes in `tojson`."""

    def raise_exception(message: str) -> None:
        raise ValueError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(
        value, ensure_ascii=False, indent=indent
    )
    environment.globals["raise_exception"] = raise_exception
    text = (TEMPLATES / template).read_text()
    variables = {"tools": None, "add_generation_prompt": True, "bos_token": "<|begin_of_text|>", **variables}
    return environment.from_string(text).render(messages=messages, **variables)


def test_smollm2_without_tools_writes_chatml() -> None:
    answer = {"role": "assistant", "content": "Paris."}
    assert prompt("smollm2-hermes.jinja", [USER, answer, USER]) == (
        DEFAULT_SYSTEM
        + "<|im_start|>user\nWeather in Paris?<|im_end|>\n<|im_start|>assistant\nParis.<|im_end|>\n"
        + "<|im_start|>user\nWeather in Paris?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert prompt("smollm2-hermes.jinja", [SYSTEM, USER], add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWeather in Paris?<|im_end|>\n"
    )


def test_smollm2_lists_tools_after_the_instructions() -> None:
    for role in ("system", "developer"):
        text = prompt("smollm2-hermes.jinja", [{**SYSTEM, "role": role}, USER], tools=[TOOL])
        assert text.startswith("<|im_start|>system\nBe brief.\n\n")
        assert f"<tools>\n{json.dumps(TOOL)}\n</tools>" in text
        assert text.count("<|im_start|>system") == 1


@pytest.mark.parametrize(("content", "calls"), [(None, 1), ("On it.", 1), (None, 2), ("On it.", 2)])
def test_smollm2_writes_past_calls_like_hermes(content: str | None, calls: int) -> None:
    meaning = Meaning.of(content, calls=(ToolCall("get_weather", ARGUMENTS),) * calls)
    text = prompt("smollm2-hermes.jinja", [USER, past_call(content, calls), RESULT, RESULT], tools=[TOOL])
    assert f"<|im_start|>assistant\n{render('hermes', meaning)}\n" in text
    result = '<tool_response>\n{"sky": "clear"}\n</tool_response>'
    assert text.endswith(f"<|im_start|>user\n{result}\n{result}<|im_end|>\n<|im_start|>assistant\n")


def test_llama_puts_functions_into_the_first_user_message_only() -> None:
    text = prompt("llama3.1-json.jinja", [SYSTEM, USER, past_call(), RESULT, USER], tools=[TOOL])
    header = "<|start_header_id|>{}<|end_header_id|>\n\n"
    assert text.startswith("<|begin_of_text|>" + header.format("system") + "Environment: ipython\n")
    assert text.count(json.dumps(TOOL, indent=4)) == 1
    assert text.index('"get_weather"') < text.index("Weather in Paris?")
    assert text.endswith(
        header.format("ipython")
        + '{"sky": "clear"}<|eot_id|>'
        + header.format("user")
        + "Weather in Paris?<|eot_id|>"
        + header.format("assistant")
    )


def test_llama_without_tools_does_not_mention_them() -> None:
    assert prompt("llama3.1-json.jinja", [USER]) == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWeather in Paris?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_llama_writes_a_past_call_like_its_dialect() -> None:
    meaning = Meaning.of(calls=(ToolCall("get_weather", ARGUMENTS),))
    text = prompt("llama3.1-json.jinja", [USER, past_call(), RESULT], tools=[TOOL])
    assert f"<|start_header_id|>assistant<|end_header_id|>\n\n{render('llama_json', meaning)}" in text


def test_llama_refuses_two_calls_in_a_turn() -> None:
    with pytest.raises(ValueError, match="one tool call a turn"):
        prompt("llama3.1-json.jinja", [USER, past_call(calls=2)], tools=[TOOL])
