"""Differences between vLLM 0.33.0 and 0.32.0, which show that the suite detects changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.defects.conftest import Talk
from tests.defects.wire import (
    CHAT_TOOL,
    SHOW_PROMPT,
    TOOL,
    Json,
    Wire,
    message_of,
    prompt_of,
    refused,
    text_of,
)
from tests.own_server import OwnServer
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import Raw, ScriptBook
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("responses", "tools")]

WORDS = "one two three four five six seven eight nine ten eleven twelve"
LONG_CALL = ToolCall("get_weather", {"city": "Paris, " * 40})


@pytest.mark.covers("vllm-45386")
@pytest.mark.vllm_known_defect("vllm-45386")
def test_cut_stream_ends_incomplete(wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference, streaming events: a truncated stream ends with response.incomplete."""
    script(WORDS, expect="truncated")
    last = wire.stream("Count", max_output_tokens=8)[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")


@pytest.mark.covers("vllm-45386")
def test_replay_of_a_cut_stream_ends(wire: Wire, script: ScriptWriter) -> None:
    """The replay ends where the stream ended, whatever the type of the last event."""
    script(WORDS, expect="truncated")
    events = wire.stream("Count", max_output_tokens=8, background=True)
    assert wire.replay(events[-1]["response"]["id"]) == events


@pytest.mark.covers("vllm-57998")
@pytest.mark.parametrize(
    ("what", "stream"),
    [
        pytest.param(
            what,
            stream,
            id=f"{what}-{'stream' if stream else 'body'}",
            marks=[
                pytest.mark.vllm_known_defect("vllm-57998", models=["qwen3", "llama3.1"]),
                *([pytest.mark.vllm_known_defect("vllm-57998-harmony")] if stream else []),
            ],
        )
        for what in ("text", "call")
        for stream in (False, True)
    ],
)
def test_cut_item_is_incomplete(what: str, stream: bool, wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI, OutputMessage.status and FunctionToolCall.status."""
    script(**({"say": WORDS} if what == "text" else {"calls": [LONG_CALL]}), expect="truncated")
    request: Json = {"tools": [TOOL], "max_output_tokens": 40 if what == "call" else 12}
    if stream:
        events = wire.stream("Go", **request)
        last = [event["item"] for event in events if event["type"] == "response.output_item.done"][-1]
    else:
        last = wire.respond("Go", **request)["output"][-1]
    assert last["status"] == "incomplete"


@pytest.mark.covers("vllm-53255", "vllm-58228")
@pytest.mark.vllm_known_defect("vllm-58228")
def test_cut_call_finishes_by_length(wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference, finish_reason: `length`, the limit was reached."""
    script(calls=[LONG_CALL], expect="truncated")
    completion = wire.chat("Weather?", tools=[CHAT_TOOL], max_tokens=40)
    assert completion["choices"][0]["finish_reason"] == "length"


ECHOED: list[tuple[str, Any, Any]] = [
    ("prompt_cache_key", "user-7", "user-7"),
    ("prompt_cache_options", {"mode": "explicit"}, {"mode": "explicit", "ttl": "30m"}),
    ("prompt_cache_retention", "24h", "24h"),
    ("prompt_cache_retention", "in-memory", "in_memory"),
    ("safety_identifier", "user-7", "user-7"),
]


@pytest.mark.parametrize(
    ("field", "sent", "echoed"), ECHOED, ids=["key", "options", "retention", "old retention", "safety"]
)
@pytest.mark.vllm_known_defect("vllm-33381-echo")
def test_response_echoes_what_was_set(
    field: str, sent: Any, echoed: Any, wire: Wire, script: ScriptWriter
) -> None:
    """Source: OpenAPI, Response: these settings are also fields of the response."""
    script("Hello.")
    returned = wire.respond("Hi", **{field: sent}).get(field)
    if isinstance(echoed, dict):
        returned = {key: value for key, value in (returned or {}).items() if key in echoed}
    assert returned == echoed


@pytest.mark.vllm_harmony
@pytest.mark.vllm_known_defect("tool-choice-none-is-not-for-streams")
def test_chat_streams_no_call_where_none_is_wanted(wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference: with tool_choice `none`, the model will not call any tool."""
    script(calls=[ToolCall("get_weather", {"city": "Paris"})], times=2)
    request: Json = {"tools": [CHAT_TOOL], "tool_choice": "none"}
    assert not message_of(wire.chat("Go", **request)).get("tool_calls")
    chunks = wire.chat_stream("Go", **request)
    assert not [d for c in chunks if c["choices"] for d in c["choices"][0]["delta"].get("tool_calls") or []]


@pytest.mark.vllm_known_defect("data-parallel-rank-on-responses")
def test_header_of_the_data_parallel_rank_counts(vllm_server: VllmServer, wire: Wire) -> None:
    """Responses, like Chat Completions, refuses a rank in vLLM's own header that the server lacks."""
    book = ScriptBook(vllm_server.endpoint, vllm_server.entry)
    book.script("Hello.", times=None)
    rank = {"X-data-parallel-rank": "7"}
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    for path, body in {"/v1/chat/completions": chat, "/v1/responses": {"input": "Hi"}}.items():
        answer = book.endpoint.post(path, json={"model": wire.model, **body}, headers=rank)
        assert "data_parallel_rank" in refused(answer)["message"], path


@pytest.mark.vllm_standard
@pytest.mark.vllm_model("llama3.1")
@pytest.mark.vllm_known_defect("skip-special-tokens-of-the-server")
def test_server_says_whether_special_tokens_show(own_server: OwnServer, talk: Talk) -> None:
    """`--override-generation-config` sets the default for Responses and Chat Completions alike.

    qwen3 is not tested: its reasoning parser always drops special tokens from bodies.
    """
    server = own_server(["--override-generation-config", json.dumps({"skip_special_tokens": False})])
    with talk(server) as (book, wire):
        book.script(Raw("A <|start_header_id|> box.<|eot_id|>"), times=2)
        texts = message_of(wire.chat("Go"))["content"], text_of(wire.respond("Go"))
    assert all("<|start_header_id|>" in text for text in texts)


@pytest.mark.vllm_harmony
@pytest.mark.vllm_known_defect("reasoning-effort-map")
def test_server_maps_reasoning_efforts(own_server: OwnServer, talk: Talk) -> None:
    """OpenAI's API has the effort `minimal`, which Harmony lacks; a server flag maps it to another effort."""
    server = own_server(["--reasoning-effort-map", json.dumps({"minimal": "low"})])
    with talk(server) as (book, wire):
        book.script("Hello.")
        response = wire.respond("Hi", reasoning={"effort": "minimal"}, **SHOW_PROMPT)
    assert "low" in prompt_of(response).lower()


MESSAGES = {"max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.covers("vllm-57997")
@pytest.mark.vllm_needs("messages")
@pytest.mark.vllm_known_defect("vllm-57997")
def test_messages_name_errors_as_anthropic_does(vllm_server: VllmServer, wire: Wire) -> None:
    """Source: Anthropic API, Errors: the error with status 404 has the type not_found_error."""
    answer = wire.http.post("/v1/messages", json={"model": "nobody", **MESSAGES})
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found_error"
