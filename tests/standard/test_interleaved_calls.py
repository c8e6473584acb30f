"""Calls whose streamed arguments alternate, as Chat Completions allows, keep their arguments on every API.

No parser in vLLM streams calls like this, so the server loads the parser in interleaving_hermes.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.behaviours.tools import RESPONSES_TOOL
from tests.chat_api import ASK, FREE, streamed
from tests.lost_calls import checks_for
from tests.messages_api import TOOL, messages_on
from tests.own_server import OwnServer
from vllm_harness import ToolCall, known_defect
from vllm_harness._protocol import validate_stream
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._server.remote import RemoteServer

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3")]

PLUGIN = Path(__file__).with_name("interleaving_hermes.py")
CITIES = [{"city": "Paris"}, {"city": "Rome"}]


@pytest.fixture
def server(_vllm_target_server: RemoteServer, own_server: OwnServer) -> RemoteServer:
    """A server for the target's model entry with the parser in interleaving_hermes.py."""
    entry = _vllm_target_server.entry.model_copy(update={"tool_call_parser": "interleaves"})
    return own_server(["--tool-parser-plugin", str(PLUGIN)], entry=entry)


@pytest.fixture
def book(book: ScriptBook) -> ScriptBook:
    """A script book that answers every request with two calls; it is verified at the end."""
    book.script(calls=[ToolCall("get_weather", city) for city in CITIES], times=None, delivery="tokens_1")
    return book


@pytest.mark.covers("VC-015")
def test_over_chat(server: RemoteServer, book: ScriptBook) -> None:
    with book.client() as client:
        chunks = list(
            client.chat.completions.create(model=server.model, messages=ASK, tools=[FREE], stream=True)
        )
    deltas = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    order = [call.index for call in deltas if call.function and call.function.arguments]
    assert order != sorted(order)  # the arguments alternate
    assert streamed(chunks).arguments == CITIES
    assert not [finding for finding in validate_stream(chunks) if finding.counts]


@pytest.mark.covers("VR-028")
@known_defect("interleaved-calls-lose-arguments")
def test_over_responses(server: RemoteServer, book: ScriptBook, check_stream: Callable[..., None]) -> None:
    def pieces() -> int:
        with book.client() as client:
            events = list(
                client.responses.create(model=server.model, input="Hi", tools=[RESPONSES_TOOL], stream=True)
            )
        output = events[-1].response.output
        assert [json.loads(item.arguments) for item in output if item.type == "function_call"] == CITIES
        check_stream(events)
        return sum(event.type == "response.function_call_arguments.delta" for event in events)

    assert in_turns(pieces())


@pytest.mark.covers("VA-010")
@known_defect("interleaved-calls-lose-arguments")
def test_over_messages(server: RemoteServer, book: ScriptBook, request: pytest.FixtureRequest) -> None:
    def pieces() -> int:
        with messages_on(book.endpoint, server.model, checks_for(request, server)) as messages:
            stream = messages.stream("Hi", tools=[TOOL])
        blocks = [block for block in stream.message["content"] if block["type"] == "tool_use"]
        assert [block["input"] for block in blocks] == CITIES
        deltas = [event["delta"] for event in stream.of("content_block_delta")]
        return sum(bool(delta.get("partial_json")) for delta in deltas)

    assert in_turns(pieces())


def in_turns(pieces: int) -> bool:
    """Whether the arguments arrived in more pieces than there are calls."""
    return pieces > len(CITIES)
