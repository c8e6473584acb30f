"""Behaviours of Chat Completions that every model entry must show."""

from __future__ import annotations

import pytest
from openai import OpenAI

from harness.pytest_plugin import ScriptWriter, Server, StreamCheck
from tests.behaviours.responses import CALL, FRANCE, PARIS
from tests.behaviours.tools import CHAT_TOOL

ASK = [{"role": "user", "content": FRANCE}]


def test_chat_answer(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(PARIS)
    chat = openai_client.chat.completions.create(model=vllm_server.model, messages=ASK, temperature=0)
    assert chat.choices[0].finish_reason == "stop"
    assert "Paris" in (chat.choices[0].message.content or "")


def test_chat_stream_equals_body(
    vllm_server: Server, openai_client: OpenAI, script: ScriptWriter, check_stream: StreamCheck
) -> None:
    script(PARIS, times=2)
    body = openai_client.chat.completions.create(model=vllm_server.model, messages=ASK, temperature=0)
    chunks = list(
        openai_client.chat.completions.create(
            model=vllm_server.model,
            messages=ASK,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    check_stream(chunks)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == body.choices[0].message.content
    assert chunks[-1].usage is not None
    assert body.usage is not None
    assert chunks[-1].usage.completion_tokens == body.usage.completion_tokens


def test_chat_length_limit(vllm_server: Server, openai_client: OpenAI, script: ScriptWriter) -> None:
    script("one two three four five six seven eight nine ten eleven twelve", expect="cut")
    chat = openai_client.chat.completions.create(
        model=vllm_server.model, messages=ASK, temperature=0, max_tokens=4
    )
    assert chat.choices[0].finish_reason == "length"
    assert chat.usage is not None
    assert chat.usage.completion_tokens == 4


@pytest.mark.scripted
@pytest.mark.needs("tools")
def test_chat_call_streamed_equals_body(
    vllm_server: Server, openai_client: OpenAI, script: ScriptWriter, check_stream: StreamCheck
) -> None:
    script(calls=[CALL], times=2)
    body = openai_client.chat.completions.create(
        model=vllm_server.model, messages=ASK, tools=[CHAT_TOOL], temperature=0
    )
    assert body.choices[0].finish_reason == "tool_calls"
    calls = body.choices[0].message.tool_calls or []
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        (CALL.name, CALL.arguments_json)
    ]
    chunks = list(
        openai_client.chat.completions.create(
            model=vllm_server.model, messages=ASK, tools=[CHAT_TOOL], temperature=0, stream=True
        )
    )
    check_stream(chunks)
    deltas = [d for c in chunks if c.choices for d in c.choices[0].delta.tool_calls or []]
    assert "".join(d.function.name or "" for d in deltas if d.function) == CALL.name
    assert "".join(d.function.arguments or "" for d in deltas if d.function) == CALL.arguments_json
