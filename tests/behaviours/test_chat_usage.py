"""Usage over Chat Completions: when it is sent, that it adds up, and that it grows during a stream."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.chat_api import ASK, FREE, HISTORY, Chat
from vllm_harness._testing.fixtures import ScriptWriter

TEXT = "one two three four five six seven eight nine ten"


@pytest.mark.covers("VC-006")
@pytest.mark.parametrize(
    "options", [None, {}, {"include_usage": False}, {"include_usage": None}, {"continuous_usage_stats": True}]
)
def test_no_usage_unless_asked_for(options: Any, chat: Chat, script: ScriptWriter) -> None:
    script(TEXT)
    chunks = chat.stream(stream_options=options, max_tokens=20)
    assert not any(chunk.usage for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


@pytest.mark.covers("VC-006")
def test_usage_in_a_last_chunk_of_its_own(chat: Chat, script: ScriptWriter) -> None:
    """The last chunk has the same usage as the body and no choices; earlier chunks have none."""
    script(TEXT, times=2)
    answers = chat.both(max_tokens=20)
    *before, last = answers.chunks
    assert not any(chunk.usage for chunk in before)
    assert last.choices == []
    assert last.usage is not None
    assert answers.body.usage is not None
    assert last.usage.prompt_tokens == answers.body.usage.prompt_tokens
    assert last.usage.completion_tokens == answers.body.usage.completion_tokens
    assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens


@pytest.mark.covers("VC-006")
@pytest.mark.parametrize("tokens", [1, 4])
def test_usage_in_every_chunk(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    """Completion tokens never decrease, prompt tokens stay constant, and the last chunk has the total."""
    script(TEXT)
    chunks = chat.stream(
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        max_tokens=30,
        stream_interval=tokens,
    )
    usages = [chunk.usage for chunk in chunks]
    assert all(usages)
    counts = [usage.completion_tokens for usage in usages if usage]
    assert counts[0] == 0
    assert all(before <= after for before, after in pairwise(counts))
    assert counts[-1] == counts[-2] > 4
    assert len({usage.prompt_tokens for usage in usages if usage}) == 1


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-006", "VC-025", "VC-013")
@pytest.mark.vllm_needs("reasoning")
def test_reasoning_tokens_in_every_chunk(chat: Chat, script: ScriptWriter) -> None:
    script("Rain.", reasoning="There are clouds, so rain.")
    chunks = chat.stream(stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [
        chunk.usage.completion_tokens_details.reasoning_tokens or 0
        for chunk in chunks
        if chunk.usage and chunk.usage.completion_tokens_details
    ]
    assert len(counts) == len(chunks)
    assert counts[0] == 0
    assert all(before <= after for before, after in pairwise(counts))
    assert counts[-1] > 4


@pytest.mark.covers("VC-006")
@pytest.mark.parametrize("stream", [False, None])
def test_stream_options_without_stream(stream: Any, chat: Chat) -> None:
    chat.refused({"stream": stream, "stream_options": {"include_usage": True}}, "stream")


@pytest.mark.covers("VC-004", "VC-025")
def test_prompt_tokens_are_those_of_the_prompt(chat: Chat, script: ScriptWriter) -> None:
    """Usage, the prompt's ids and, if the family has a chat template, /tokenize agree."""
    script("Rain.")
    body = chat.body(return_token_ids=True, max_tokens=20)
    assert body.usage is not None
    assert body.usage.prompt_tokens == len(body.prompt_token_ids)  # type: ignore[attr-defined]
    if not chat.server.entry.harmony:
        counted = chat.post("/tokenize", {"model": chat.server.model, "messages": ASK}).json()
        assert counted["count"] == len(counted["tokens"]) == body.usage.prompt_tokens
        assert counted["tokens"] == body.prompt_token_ids  # type: ignore[attr-defined]


@pytest.mark.vllm_standard
@pytest.mark.covers("VC-042", "VC-025")
@pytest.mark.parametrize(
    "more",
    [
        {"tools": [FREE]},
        {"messages": HISTORY, "tools": [FREE]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {
            "messages": [*ASK, {"role": "assistant", "content": "It"}],
            **{"add_generation_prompt": False, "continue_final_message": True},
        },
    ],
    ids=["tools", "history", "template's arguments", "goes on"],
)
def test_tokens_of_a_chat_are_its_prompt(more: dict[str, Any], chat: Chat, script: ScriptWriter) -> None:
    """/tokenize makes the same prompt from messages, tools and template arguments as a request does."""
    script("Rain.")
    request = {"messages": ASK, **more}
    body = chat.body(return_token_ids=True, max_tokens=20, **request)
    counted = chat.post("/tokenize", {"model": chat.server.model, **request}).json()
    assert counted["tokens"] == body.prompt_token_ids  # type: ignore[attr-defined]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-004", "VC-025")
def test_completion_tokens_are_those_of_the_script(chat: Chat, script: ScriptWriter) -> None:
    """completion_tokens counts the tokens of the script, and the token that ends the turn."""
    written = script(TEXT, times=2)
    assert written is not None
    answers = chat.both()
    assert answers.body.usage is not None
    assert answers.body.usage.completion_tokens == len(written.takes[0])
