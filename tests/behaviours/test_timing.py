"""When the events of a stream come: while the model writes, and not in one piece once it is done.

Nothing here depends on how fast a machine is: an event is held against how far its own script has come.
"""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.apis import PATHS, Api, Json
from tests.behaviours.tools import RESPONSES_TOOL
from vllm_harness.endpoint import tls
from vllm_harness.protocol import SSEEvent, parse_sse, timing_facts
from vllm_harness.protocol.core.timing import carries_text
from vllm_harness.scripted.book import ScriptBook
from vllm_harness.scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness.scripted.meaning import Meaning, Reasoning, Text, ToolCall
from vllm_harness.server.remote import RemoteServer

WORDS = " ".join(f"word {number}" for number in range(120))
SAYINGS = [
    pytest.param(Meaning((Text(WORDS),)), id="text"),
    pytest.param(
        Meaning((Reasoning(WORDS), Text("Done."))), id="thoughts", marks=pytest.mark.vllm_needs("reasoning")
    ),
    pytest.param(Meaning((ToolCall("get_weather", {"city": WORDS}),)), id="call"),
]
FUNCTION = {key: RESPONSES_TOOL[key] for key in ("name", "description", "parameters")}
REQUESTS: dict[Api, Json] = {
    "responses": {"input": "Go on.", "tools": [{"type": "function", **FUNCTION}]},
    "chat": {
        "messages": [{"role": "user", "content": "Go on."}],
        "tools": [{"type": "function", "function": FUNCTION}],
    },
    "messages": {
        "messages": [{"role": "user", "content": "Go on."}],
        "tools": [{"name": FUNCTION["name"], "input_schema": FUNCTION["parameters"]}],
        "max_tokens": 1000,
    },
}


def first_and_all(
    server: RemoteServer, book: ScriptBook, api: Api
) -> tuple[Json, list[tuple[float, SSEEvent]]]:
    """How far the script was when the first text came, and all events with the seconds until they came."""
    body = {"model": server.model, "stream": True, "temperature": 0, **REQUESTS[api]}
    headers = {BOOK_HEADER: book.name}
    url, limit = server.endpoint.url_for(PATHS[api]), server.endpoint.request_s
    began, arrived, at_first = time.monotonic(), list[tuple[float, SSEEvent]](), dict[str, Any]()
    with (
        httpx.Client(timeout=limit, verify=tls()) as http,
        http.stream("POST", url, json=body, headers=headers) as answer,
    ):
        for event in parse_sse(answer.iter_bytes()):
            arrived.append((time.monotonic() - began, event))
            if not at_first and carries_text(event):
                at_first = book.report()["uses"][0]["generations"][0]
    return at_first, arrived


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "responses", "chat", "messages")
@pytest.mark.covers("VR-006", "VC-002", "VA-002")
@pytest.mark.parametrize("meaning", SAYINGS)
def test_answer_comes_while_it_is_written(meaning: Meaning, vllm_server: RemoteServer) -> None:
    """The first words are there before the last are written, and the others follow over the time."""
    for api in PATHS:
        book = ScriptBook(vllm_server.endpoint, vllm_server.entry)
        book.script(meaning)
        at_first, arrived = first_and_all(vllm_server, book, api)
        assert at_first, f"{api}: no text in {[event.event for _, event in arrived]}"
        assert at_first["position"] < at_first["length"], f"{api}: the first text came after the last token"
        facts = timing_facts(arrived)
        assert facts.incremental, f"{api}: {facts}"
        book.verify()
        book.close()
