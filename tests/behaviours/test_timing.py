"""Tests that the events of a stream arrive while the model generates, and not all at the end.

No check depends on the machine's speed: each event is compared with the progress of its own script.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.apis import PATHS, Api, Json, opened
from tests.behaviours.tools import RESPONSES_TOOL
from vllm_harness._protocol import SSEEvent, parse_sse
from vllm_harness._protocol.core.timing import carries_text
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.meaning import Meaning, Reasoning, Text, ToolCall
from vllm_harness._server.remote import RemoteServer

WORDS = " ".join(f"word {number}" for number in range(40))
LONG = " ".join(["word"] * 5000)  # generating these words takes many times as long as disconnecting


def text(words: str) -> Meaning:
    """Returns a text answer."""
    return Meaning((Text(words),))


def reasoning(words: str) -> Meaning:
    """Returns reasoning and a short answer."""
    return Meaning((Reasoning(words), Text("Done.")))


def call(words: str) -> Meaning:
    """Returns a call with a long argument."""
    return Meaning((ToolCall("get_weather", {"city": words}),))


EARLY: dict[Api, tuple[str, ...]] = {
    "responses": (
        *("response.created", "response.in_progress", "response.output_item.added"),
        *("response.output_item.done", "response.output_item.added", "response.content_part.added"),
    ),
    "chat": ("reasoning",),
    "messages": ("message_start", "content_block_start", "content_block_stop", "content_block_start"),
}
"""The events that a stream must send before the text that follows reasoning."""
ENOUGH = 100
"""The number of words (of 5000, each one token) that the client reads before it disconnects."""
SAYINGS = [
    pytest.param(text, id="text"),
    pytest.param(reasoning, id="thoughts", marks=pytest.mark.vllm_needs("reasoning")),
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
    """Opens a streamed answer, and yields its events as they arrive."""
    body = {"model": server.model, "stream": True, "temperature": 0, **REQUESTS[api]}
    with opened(book.endpoint, "POST", PATHS[api], json=body) as answer:
        yield iter(parse_sse(answer.iter_bytes()))


@pytest.mark.vllm_long
@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "responses", "chat", "messages")
@pytest.mark.covers("VR-006", "VA-002")
@pytest.mark.parametrize("say", SAYINGS)
def test_answer_comes_while_it_is_written(say: Callable[[str], Meaning], vllm_server: RemoteServer) -> None:
    """The first words arrive before the last ones are generated, and each word in a delta of its own."""
    for api in PATHS:
        book = ScriptBook(vllm_server.endpoint, vllm_server.entry)
        book.script(say(LONG), expect="truncated")
        with stream(vllm_server, book, api) as events:
            assert count_words(events) >= ENOUGH, f"{api}: too few words"
        book.verify()  # the client left before the script ended, so no words had waited for the end
        book.script(say(WORDS), delivery="tokens_1")
        with stream(vllm_server, book, api) as events:
            deltas = sum(carries_text(event) for event in events)
        assert deltas >= WORDS.count("word"), f"{api}: {deltas} deltas"
        book.verify()
        book.close()


def count_words(events: Iterator[SSEEvent]) -> int:
    """Counts the words of a stream, and stops at ENOUGH."""
    words = 0
    for event in events:
        words += event.data.count("word") if carries_text(event) else 0
        if words >= ENOUGH:
            break
    return words


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning", "responses", "chat", "messages")
@pytest.mark.covers("VR-006", "VA-002")
def test_no_event_waits_for_the_end(vllm_server: RemoteServer) -> None:
    """The events that end the reasoning and announce the text come before the text.

    The client disconnects at the first words of an answer that would continue, so that the script does not
    finish: events that have arrived by then have not waited for the end of the answer.
    """
    for api in PATHS:
        early = names_to_words(vllm_server, api)
        assert not missing(early, api), (
            f"{api}: {missing(early, api)} did not come before the text, only {early}"
        )


def names_to_words(server: RemoteServer, api: Api) -> list[str]:
    """Returns the names of the events up to the first words, then disconnects."""
    book = ScriptBook(server.endpoint, server.entry)
    book.script(Meaning((Reasoning("Hm."), Text(LONG))), expect="truncated", delivery="tokens_1")
    with stream(server, book, api) as events:
        names = [name_of(event) for event in to_the_first_words(events)]
    book.verify()
    book.close()
    return names


def missing(names: list[str], api: Api) -> list[str]:
    """Returns the names of early events that are missing from the given names."""
    return [name for name in EARLY[api] if names.count(name) < EARLY[api].count(name)]


def to_the_first_words(events: Iterator[SSEEvent]) -> Iterator[SSEEvent]:
    """Yields the events up to the first one with words of the answer, which the reasoning does not have."""
    for event in events:
        yield event
        if carries_text(event) and "word" in event.data:
            return


def name_of(event: SSEEvent) -> str:
    """Returns the type of an event; for a chunk of Chat Completions, the fields of its delta."""
    value = json.loads(event.data)
    if "type" in value:
        return str(value["type"])
    return " ".join(key for key, part in value["choices"][0]["delta"].items() if part)
