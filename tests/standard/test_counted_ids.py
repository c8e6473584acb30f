"""Call ids that contain a number: Kimi K2's `functions.NAME:NUMBER`, on a stand-in for its family."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from openai import OpenAI

from tests.own_server import OwnServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.families import entry_of, load_families
from vllm_harness._scripted.meaning import ToolCall

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("qwen3"),
    pytest.mark.vllm_needs("parallel_tools"),
]

CALLS = (ToolCall("get_weather", {"city": "Paris"}), ToolCall("get_tides", {"city": "Rome"}))
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: list[Any] = [{"type": "function", "name": call.name, "parameters": PARAMETERS} for call in CALLS]
CHAT_TOOLS: list[Any] = [
    {"type": "function", "function": {"name": call.name, "parameters": PARAMETERS}} for call in CALLS
]
ASK: list[Any] = [{"role": "user", "content": "Weather and tides?"}]
IDS = [f"functions.{call.name}:{number}" for number, call in enumerate(CALLS)]


@pytest.fixture
def book(own_server: OwnServer) -> Iterator[ScriptBook]:
    """A script book on a server that streams all of its output in one chunk."""
    server = own_server(["--stream-interval", "1000"], entry=entry_of(load_families()["kimi_k2_instruct"]))
    with closing(ScriptBook(server.endpoint, server.entry)) as book:
        yield book


@pytest.fixture
def client(book: ScriptBook) -> Iterator[OpenAI]:
    """A client whose requests the script book answers."""
    with book.client() as client:
        yield client


@pytest.mark.covers("VT-005")
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_ids_over_chat(choice: str, book: ScriptBook, client: OpenAI) -> None:
    """Every choice has the ids, as does a stream, even if both calls arrive in one delta."""
    book.script(calls=CALLS, constrained=choice == "required", times=2)
    request: Any = {"model": book.entry.name, "messages": ASK, "tools": CHAT_TOOLS, "tool_choice": choice}
    body = client.chat.completions.create(**request, n=2)
    for each in body.choices:
        assert [call.id for call in each.message.tool_calls or []] == IDS
    deltas = [
        each.delta
        for chunk in client.chat.completions.create(**request, stream=True)
        for each in chunk.choices
    ]
    assert [call.id for delta in deltas for call in delta.tool_calls or [] if call.id] == IDS


@pytest.mark.covers("VT-005")
def test_ids_over_responses(book: ScriptBook, client: OpenAI) -> None:
    """Responses returns the ids in the body and in the stream (vllm#47916)."""
    book.script(calls=CALLS, times=2)
    request: Any = {"model": book.entry.name, "input": "Weather and tides?", "tools": TOOLS}
    body = client.responses.create(**request)
    assert [item.call_id for item in body.output if item.type == "function_call"] == IDS
    items = [
        (event.type, event.item.call_id)
        for event in client.responses.create(**request, stream=True)
        if event.type in ("response.output_item.added", "response.output_item.done")
        and event.item.type == "function_call"
    ]
    for kind in ("added", "done"):
        assert [call_id for type_, call_id in items if type_.endswith(kind)] == IDS
