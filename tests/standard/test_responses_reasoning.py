"""Responses on models with `<think>` blocks: thinking on and off, hidden reasoning, token counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.behaviours.tools import CALL, RESPONSES_TOOL
from tests.responses_api import SHOW, Responses, items, messages_of, prompt_of
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_needs("responses", "reasoning")]

ASK = "The capital of France?"
CLOSED = "<think>\n\n</think>"  # the empty block by which Qwen3's template disables thinking
OFF: list[dict[str, Any]] = [
    {"reasoning": {"effort": "none"}},
    {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
    {
        "reasoning": {"effort": "high"},
        "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
    },
]
ON: list[dict[str, Any]] = [
    {},
    {"reasoning": {"effort": "low"}},
    {"reasoning": {"effort": "none"}, "extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
]


def showing(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the request with the option that returns the prompt."""
    return {**request, "extra_body": {**request.get("extra_body", {}), **SHOW}}


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-007", "VR-072")
@pytest.mark.parametrize("request_", OFF, ids=["effort none", "kwarg false", "kwarg beats effort"])
def test_thinking_off(request_: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    """The prompt has an empty reasoning block, and neither the body nor the stream contains reasoning."""
    script(Raw("It is Paris.<|im_end|>"), times=2)
    body, stream = responses.both(ASK, **showing(request_))
    for response in (body, stream.terminal):
        assert prompt_of(response).count(CLOSED) == 1
        assert [item.type for item in response.output] == ["message"]
        assert response.output_text == "It is Paris."
        assert response.usage is not None
        assert response.usage.output_tokens_details.reasoning_tokens == 0
    assert stream.of("reasoning_text.delta", "reasoning_text.done") == []


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-007", "VR-072", "VR-009")
@pytest.mark.parametrize("request_", ON, ids=["by default", "effort low", "kwarg beats effort none"])
def test_thinking_on(request_: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    script("It is Paris.", reasoning="A capital.", times=2)
    body, stream = responses.both(ASK, **showing(request_))
    for response in (body, stream.terminal):
        assert CLOSED not in prompt_of(response)
        assert [item.type for item in response.output] == ["reasoning", "message"]
    assert stream.joined("reasoning_text").strip() == "A capital."


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VR-029")
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "name": "get_weather"}])
@pytest.mark.parametrize("thinking", [True, False])
def test_call_with_and_without_thinking(
    choice: Any, thinking: bool, responses: Responses, script: ScriptWriter
) -> None:
    """Every tool choice gives reasoning if thinking is on, then one call, and no markup as text."""
    call = f'<tool_call>\n{{"name": "{CALL.name}", "arguments": {CALL.arguments_json}}}\n</tool_call>'
    if thinking:
        script(reasoning="I need the weather.", calls=[CALL], constrained=True, times=2)
    else:
        script(Raw(f"{call}<|im_end|>"), times=2)
    body, stream = responses.both(
        "Weather in Paris?",
        tools=[RESPONSES_TOOL],
        tool_choice=choice,
        reasoning={"effort": "low" if thinking else "none"},
    )
    for response in (body, stream.terminal):
        kinds = [item.type for item in response.output]
        assert kinds == (["reasoning", "function_call"] if thinking else ["function_call"])
        assert items(response, "function_call")[0].arguments == CALL.arguments_json
        assert response.output_text.strip() == ""


@pytest.mark.vllm_scripted
@pytest.mark.covers("VT-016", "VC-013")
@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_may_be_hidden(stream: bool, responses: Responses, script: ScriptWriter) -> None:
    """With vLLM's `include_reasoning: false`, no item or event contains reasoning, but its tokens count."""
    script("It is Paris.", reasoning="A capital.")
    hidden: dict[str, Any] = {
        "extra_body": {"include_reasoning": False},
        "include": ["message.output_text.logprobs"],
    }
    if stream:
        answer = responses.stream(ASK, **hidden)
        told = [entry for event in answer.of("output_text.delta") for entry in event.logprobs]
        response = answer.terminal
    else:
        response = responses.create(ASK, **hidden)
        told = items(response, "message")[-1].content[0].logprobs or []
    assert "capital" not in "".join(entry.token for entry in told)
    assert [item.type for item in response.output] == ["message"]
    assert response.output_text.strip() == "It is Paris."
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens > 0


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-012")
def test_reasoning_tokens_are_those_of_the_thoughts(responses: Responses, script: ScriptWriter) -> None:
    """Longer reasoning is counted as exactly the number of additional tokens."""
    counts = []
    for thoughts in ("one", "one two three four five"):
        written = script("Yes.", reasoning=thoughts)
        assert written is not None
        usage = responses.create(ASK).usage
        assert usage is not None
        assert usage.output_tokens == len(written.takes[0])
        counts.append((usage.output_tokens_details.reasoning_tokens, usage.output_tokens))
    assert counts[1][0] - counts[0][0] == counts[1][1] - counts[0][1] == 4


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-008", "VR-048")
def test_raw_messages_are_the_tokens(responses: Responses, script: ScriptWriter) -> None:
    """vLLM's `enable_response_messages` returns the prompt and the output, as text and as token ids."""
    written = script("It is Paris.", reasoning="A capital.", times=2)
    assert written is not None
    body, stream = responses.both(ASK, extra_body=SHOW)
    for response in (body, stream.terminal):
        (prompt,) = messages_of(response)
        (output,) = messages_of(response, "output")
        assert {prompt["type"], output["type"]} == {"raw_message_tokens"}
        assert output["tokens"] == list(written.takes[0])
        assert response.usage is not None
        assert len(prompt["tokens"]) == response.usage.input_tokens
        assert prompt["message"].endswith("<|im_start|>assistant\n")
        assert ASK in prompt["message"]
        assert output["message"].strip().endswith("It is Paris.")
