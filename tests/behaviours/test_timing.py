"""When the events of a stream come: while the model writes, and not in one piece once it is done.

Nothing here depends on how fast a machine is: an event is held against how far its own script has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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

WORDS = " ".join(f"word {number}" for number in range(40))
LONG = " ".join(f"word {number}" for number in range(1000))  # takes many times as long as hanging up


def text(words: str) -> Meaning:
    """An answer in words."""
    return Meaning((Text(words),))


def thoughts(words: str) -> Meaning:
    """Thoughts, and a short answer."""
    return Meaning((Reasoning(words), Text("Done.")))


def call(words: str) -> Meaning:
    """A call with a long argument."""
    return Meaning((ToolCall("get_weather", {"city": words}),))


SAYINGS = [
    pytest.param(text, id="text"),
    pytest.param(thoughts, id="thoughts", marks=pytest.mark.vllm_needs("reasoning")),
    pytest.param(call, id="call"),
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
        "max_tokens": 7000,
    },
}


@contextmanager
def stream(server: RemoteServer, book: ScriptBook, api: Api) -> Iterator[Iterator[SSEEvent]]:
    """The events of a streamed answer as they come."""
    body = {"model": server.model, "stream": True, "temperature": 0, **REQUESTS[api]}
    url, limit = server.endpoint.url_for(PATHS[api]), server.endpoint.request_s
    with (
        httpx.Client(timeout=limit, verify=tls(), headers={BOOK_HEADER: book.name}) as http,
        http.stream("POST", url, json=body) as answer,
    ):
        yield iter(parse_sse(answer.iter_bytes()))


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "responses", "chat", "messages")
@pytest.mark.covers("VR-006", "VA-002")
@pytest.mark.parametrize("say", SAYINGS)
def test_answer_comes_while_it_is_written(say: Callable[[str], Meaning], vllm_server: RemoteServer) -> None:
    """The first words are there before the last are written, and the others follow over the time."""
    for api in PATHS:
        book = ScriptBook(vllm_server.endpoint, vllm_server.entry)
        book.script(say(LONG), expect="cut")
        with stream(vllm_server, book, api) as events:
            assert any(map(carries_text, events)), f"{api}: no text"
        book.verify()  # the client left at the first words, and that cut the answer
        book.script(say(WORDS))
        began = time.monotonic()
        with stream(vllm_server, book, api) as events:
            facts = timing_facts((time.monotonic() - began, event) for event in events)
        assert facts.incremental, f"{api}: {facts}"
        book.verify()
        book.close()
