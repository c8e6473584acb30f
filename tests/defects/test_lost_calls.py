"""A tool call is lost if the API server stalls so long that all tokens of the call are in one delta."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from openai import OpenAI

from tests.lost_calls import lost_calls_excused
from tests.messages_api import messages_on
from tests.own_server import OwnServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.defects import DefectShown
from vllm_harness.extras.load.health import engine_processes

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("tools"), pytest.mark.vllm_model("llama3.1")]

ASK = [{"role": "user", "content": "Weather?"}]
TRIES = 40
LOOK_EVERY_S, LOOKS = 0.0005, 400
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
Check = Callable[..., None]
Ask = Callable[[RemoteServer, ScriptBook, OpenAI, Check], None]


def ask_chat(server: RemoteServer, book: ScriptBook, client: OpenAI, check: Check) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
    stream = client.chat.completions.create(model=server.model, messages=ASK, tools=[tool], stream=True)  # type: ignore[call-overload]
    check(list(stream))


def ask_responses(server: RemoteServer, book: ScriptBook, client: OpenAI, check: Check) -> None:
    tool = {"type": "function", "name": "weather", "parameters": SCHEMA}
    stream = client.responses.create(model=server.model, input="Weather?", tools=[tool], stream=True)  # type: ignore[call-overload]
    check(list(stream))


def ask_messages(server: RemoteServer, book: ScriptBook, client: OpenAI, check: Check) -> None:
    with messages_on(book.endpoint, server.model, lambda name: check) as messages:
        messages.stream("Weather?", tools=[{"name": "weather", "input_schema": SCHEMA}])


@contextmanager
def standing_still(server: psutil.Process) -> Iterator[None]:
    """Suspends the server's process from the moment its engine starts to work until the engine is idle."""
    (core,) = engine_processes(server.pid)
    over = threading.Event()

    def pause() -> None:
        while not over.is_set() and asleep(core):
            time.sleep(LOOK_EVERY_S)
        server.suspend()
        try:
            looks = 0
            while looks < LOOKS:
                time.sleep(LOOK_EVERY_S)
                looks = looks + 1 if asleep(core) else 0
        finally:
            server.resume()

    thread = threading.Thread(target=pause)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def asleep(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_SLEEPING


@pytest.mark.covers("vllm-31501")
@pytest.mark.vllm_known_defect("vllm-48294")
@pytest.mark.parametrize("ask", [ask_chat, ask_responses, ask_messages])
def test_a_call_in_one_delta(ask: Ask, own_server: OwnServer) -> None:
    """Stalls the server before it reads the first token, which sometimes takes several tries."""
    server = own_server()
    process = psutil.Process(server.pid)
    check = lost_calls_excused(lambda name: lambda events, **more: None, server)("check_stream")
    for number in range(TRIES):
        book = ScriptBook(server.endpoint, server.entry)
        book.script(calls=[ToolCall("weather", {"city": "Paris"})])
        try:
            with standing_still(process), book.client() as client:
                ask(server, book, client, check)
        except DefectShown as shown:
            pytest.fail(f"lost in attempt {number + 1}: {shown}")
        finally:
            book.close()
