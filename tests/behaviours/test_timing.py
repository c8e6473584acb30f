"""When the events of a stream come: while the model writes, and not in one piece once it is done.

Nothing here depends on how fast a machine is: an event is held against how far its own script has come.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.apis import PATHS, Api, Json, opened
from tests.behaviours.tools import RESPONSES_TOOL
from tests.tries import asked_until
from vllm_harness._protocol import SSEEvent, parse_sse, timing_facts
from vllm_harness._protocol.core.timing import TimingFacts, carries_text
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.meaning import Meaning, Reasoning, Text, ToolCall
from vllm_harness._server.remote import RemoteServer

WORDS = " ".join(f"word {number}" for number in range(40))
LONG = " ".join(["word"] * 5000)  # takes many times as long as hanging up


def text(words: str) -> Meaning:
    """An answer in words."""
    return Meaning((Text(words),))


def thoughts(words: str) -> Meaning:
    """Thoughts, and a short answer."""
    return Meaning((Reasoning(words), Text("Done.")))


def call(words: str) -> Meaning:
    """A call with a long argument."""
    return Meaning((ToolCall("get_weather", {"city": words}),))


EARLY: dict[Api, tuple[str, ...]] = {
    "responses": (
        *("response.created", "response.in_progress", "response.output_item.added"),
        *("response.output_item.done", "response.output_item.added", "response.content_part.added"),
    ),
    "chat": ("reasoning",),
    "messages": ("message_start", "content_block_start", "content_block_stop", "content_block_start"),
}
"""What a stream must bring before the words that follow thoughts."""
ENOUGH = 100
"""Words, each a token, that one hears of 5000 before one leaves."""
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
    with opened(book.endpoint, "POST", PATHS[api], json=body) as answer:
        yield iter(parse_sse(answer.iter_bytes()))


@pytest.mark.vllm_long
@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools", "responses", "chat", "messages")
@pytest.mark.covers("VR-006", "VA-002")
@pytest.mark.parametrize("say", SAYINGS)
def test_answer_comes_while_it_is_written(say: Callable[[str], Meaning], vllm_server: RemoteServer) -> None:
    """The first words are there before the last are written, without a gap up to the end.

    The longest wait between two deltas is not asserted: on a busy machine it says nothing about the server.
    """
    for api in PATHS:
        book = ScriptBook(vllm_server.endpoint, vllm_server.entry)
        book.script(say(LONG), expect="cut")
        with stream(vllm_server, book, api) as events:
            assert heard(events) >= ENOUGH, f"{api}: too few words"
        book.verify()  # the client left, and that cut the answer: no words had waited for its end
        ask = partial(timed, vllm_server, book, api, say(WORDS))
        facts = asked_until(lambda facts: bool(facts.incremental), ask)
        assert facts.incremental, f"{api}: {facts}"
        book.verify()
        book.close()


def timed(server: RemoteServer, book: ScriptBook, api: Api, answer: Meaning) -> TimingFacts:
    """When the events of an answer come."""
    book.script(answer)
    began = time.monotonic()
    with stream(server, book, api) as events:
        return timing_facts((time.monotonic() - began, event) for event in events)


def heard(events: Iterator[SSEEvent]) -> int:
    """The words of a stream, up to as many as one hears before one leaves."""
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
    """What closes the thoughts, and what announces the words after them, comes before the words.

    The client leaves at the first words of an answer that would go on: nothing that is there by then can have
    waited for its end, and the script ends cut.
    """
    for api in PATHS:
        early = asked_until(
            lambda names, api=api: not missing(names, api), partial(names_to_words, vllm_server, api)
        )
        assert not missing(early, api), f"{api}: {missing(early, api)} did not come before, but {early}"


def names_to_words(server: RemoteServer, api: Api) -> list[str]:
    """What comes up to the first words of an answer that is left then."""
    book = ScriptBook(server.endpoint, server.entry)
    book.script(Meaning((Reasoning("Hm."), Text(LONG))), expect="cut")
    with stream(server, book, api) as events:
        names = [name_of(event) for event in to_the_first_words(events)]
    book.verify()
    book.close()
    return names


def missing(names: list[str], api: Api) -> list[str]:
    """Those of the early events that are not among them."""
    return [name for name in EARLY[api] if names.count(name) < EARLY[api].count(name)]


def to_the_first_words(events: Iterator[SSEEvent]) -> Iterator[SSEEvent]:
    """The events up to the first with words of the answer, which the thoughts lack."""
    for event in events:
        yield event
        if carries_text(event) and "word" in event.data:
            return


def name_of(event: SSEEvent) -> str:
    """The type of an event; a chunk of Chat Completions has none, and is called by what its delta brings."""
    value = json.loads(event.data)
    if "type" in value:
        return str(value["type"])
    return " ".join(key for key, part in value["choices"][0]["delta"].items() if part)
