"""How a server operates: disconnecting clients, load, keep-alive, shutdown, restart, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import islice, takewhile
from typing import Any

import httpx2
import openai
import psutil
import pytest
from openai import AsyncOpenAI, OpenAI
from prometheus_client.parser import text_string_to_metric_families
from requests import Response

from tests.apis import opened
from tests.behaviours.tools import CHAT_TOOL, RESPONSES_TOOL
from tests.hanging import LATER, in_a_thread
from tests.own_server import OwnServer
from vllm_harness._defects.registry import known_deviations
from vllm_harness._exchange.answer import answer_of
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import (
    ChatAccumulator,
    Finding,
    ResponseAccumulator,
    apply_known,
    parse_sse,
    validate_stream,
)
from vllm_harness._scripted.book import ScriptBook, When
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._server.process_tree import tree_pids
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("gpt-oss", "qwen3"),
    pytest.mark.vllm_needs("chat", "responses"),
    pytest.mark.timeout(400),
]

AT_ONCE = 64
LONG = "word " * 3500  # the answer in streams that are never read to the end
FEW = "word " * 80
LOAD = ["--enable-server-load-tracking"]
DRAIN_S = 60
LOOK_EVERY_S, LOOKS = 0.02, 50
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


def request_of(api: str, model: str, prompt: str, **more: Any) -> dict[str, Any]:
    """Returns a request for an API, as JSON."""
    if api == "responses":
        return {"model": model, "input": prompt, "stream": True, **more}
    limit = {"max_tokens": 4000} if api == "messages" else {}
    return {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        **limit,
        **more,
    }


@dataclass(frozen=True)
class Http:
    """A client of a server over plain HTTP, whose requests one script book answers."""

    endpoint: Endpoint
    model: str

    def open(
        self, api: str, prompt: str, *, silent_s: float = DRAIN_S, **more: Any
    ) -> contextlib.AbstractContextManager[httpx2.Response]:
        """Opens a stream; reading raises httpx2.ReadTimeout if nothing arrives for `silent_s` seconds."""
        request = request_of(api, self.model, prompt, **more)
        return opened(self.endpoint, "POST", PATHS[api], json=request, timeout=silent_s)

    def get(self, path: str) -> Response:
        """Sends a GET request without further options."""
        return self.endpoint.get(path, timeout=DRAIN_S)

    def counted(self, name: str, **labels: str) -> float:
        """Returns the value of a metric, summed over the samples with these labels."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.get("/metrics").text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@dataclass(frozen=True)
class Own:
    """A separate server, with the script book of one test."""

    server: RemoteServer
    book: ScriptBook
    http: Http

    @property
    def client(self) -> OpenAI:
        """An SDK client whose requests the script book answers."""
        return self.book.client()


@pytest.fixture
def own(own_server: OwnServer) -> Callable[..., Own]:
    """Starts a server with these flags; without flags, returns the one that most tests in this file share."""

    def start(*args: str) -> Own:
        server = own_server(list(args) or LOAD)
        book = ScriptBook(server.endpoint, server.entry)
        return Own(server, book, Http(book.endpoint, server.model))

    return start


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    """Waits until the condition is true, and returns whether that happened in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def data_lines(lines: Iterator[str], number: int) -> list[str]:
    """Returns the first data lines of a stream, which stays open while the caller keeps the iterator."""
    return list(islice((line for line in lines if line.startswith("data:")), number))


@pytest.mark.covers("VC-037")
def test_load_counts_open_requests(own: Callable[..., Own]) -> None:
    """Runs first on its server, since disconnecting clients may take the count below 0 (vllm#49526)."""
    server = own()
    assert server.http.get("/load").json() == {"server_load": 0}
    server.book.script(LONG, expect="truncated")
    with server.http.open("chat", "Go on and on") as response:
        lines = response.iter_lines()
        data_lines(lines, 3)
        assert server.http.get("/load").json() == {"server_load": 1}
    assert wait_until(lambda: server.http.get("/load").json() == {"server_load": 0})
    too_long = {"messages": [{"role": "user", "content": "word " * 50_000}]}
    assert server.server.endpoint.post(PATHS["chat"], json=too_long, timeout=60).status_code == 400
    assert server.http.get("/load").json() == {"server_load": 0}


# clients that disconnect


@pytest.mark.covers("VC-037", "VC-038", "VC-040")
@pytest.mark.parametrize("api", PATHS)
def test_stream_whose_client_leaves_is_aborted(api: str, own: Callable[..., Own]) -> None:
    """The engine stops generating when the client disconnects."""
    server = own()
    take = server.book.script(LONG, expect="truncated")
    before = server.http.counted("vllm:generation_tokens_total")
    begin_and_leave(server, api)
    assert 0 < server.http.counted("vllm:generation_tokens_total") - before < len(take.takes[0])
    server.book.verify()


def begin_and_leave(server: Own, api: str) -> None:
    """Disconnects from a stream after eight events, and returns when the server no longer generates."""
    with server.http.open(api, "Go on and on") as response:
        lines = response.iter_lines()
        assert len(data_lines(lines, 8)) == 8
        assert server.http.counted("vllm:num_requests_running") == 1
    assert wait_until(lambda: server.http.counted("vllm:num_requests_running") == 0)


@pytest.mark.covers("VC-038")
@pytest.mark.vllm_known_defect("vllm-31503")
def test_metrics_count_aborts(own: Callable[..., Own]) -> None:
    """A request whose client disconnected counts as finished, with the reason `abort`."""
    server = own()
    server.book.script(LONG, expect="truncated")
    aborted = server.http.counted("vllm:request_success_total", finished_reason="abort")
    begin_and_leave(server, "chat")
    server.book.script("Later.", times=LATER)
    for _ in range(LATER):
        server.client.responses.create(model=server.server.model, input="Later?")
    assert server.http.counted("vllm:request_success_total", finished_reason="abort") == aborted + 1


@pytest.mark.covers("VC-037", "VC-038")
@pytest.mark.parametrize("api", PATHS)
def test_request_whose_client_leaves_is_aborted(api: str, own: Callable[..., Own]) -> None:
    """The engine also stops if a client that waits for a body disconnects during generation."""
    server = own()
    take = server.book.script(LONG, expect="truncated")
    before = server.http.counted("vllm:generation_tokens_total")

    def generated() -> float:
        return server.http.counted("vllm:generation_tokens_total") - before

    request = request_of(api, server.server.model, "Go on and on", stream=False)
    headers = {**server.http.endpoint.headers_for(api), "Content-Type": "application/json"}
    with contextlib.closing(HTTPConnection(server.server.launch.host, server.server.port)) as client:
        client.request("POST", PATHS[api], json.dumps(request), headers)
        assert wait_until(lambda: generated() > 0)
    assert wait_until(lambda: server.http.counted("vllm:num_requests_running") == 0)
    assert generated() < len(take.takes[0])


@pytest.mark.vllm_alone
@pytest.mark.covers("VC-037")
def test_many_clients_leave(own: Callable[..., Own]) -> None:
    """200 streams and bodies are abandoned, and the next request does not wait for them."""
    server = own()
    take = server.book.script(LONG, times=200, expect="truncated", when=When(user="on and on"))

    def give_up(number: int) -> None:
        api, streamed = list(PATHS)[number % len(PATHS)], number % 2 == 0
        with (
            contextlib.suppress(httpx2.HTTPError),
            server.http.open(api, "Go on and on", silent_s=0.5, stream=streamed) as response,
        ):
            next(response.iter_lines(), None)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(give_up, range(200)))
    server.book.script("Here I am.", when=When(user="Are you there"))
    answer = server.client.responses.create(model=server.server.model, input="Are you there?")
    assert "Here I am." in answer.output_text
    assert server.http.counted("vllm:generation_tokens_total") < 200 * len(take.takes[0]) / 2
    assert wait_until(lambda: server.http.counted("vllm:num_requests_running") == 0)


# load


@dataclass(frozen=True)
class StreamCase:
    """One of many concurrent streams: its scripted answer, and the request for it."""

    number: int

    @property
    def key(self) -> str:
        """A string that only this stream's request contains."""
        return f"question number {self.number}."

    @property
    def api(self) -> str:
        """The API: chat or responses."""
        return "responses" if self.number % 2 else "chat"

    @property
    def call(self) -> ToolCall | None:
        """The call in the answer, if the answer has one."""
        if self.number % 4 < 2:
            return None
        return ToolCall("get_weather", {"city": f"City {self.number}"})

    @property
    def text(self) -> str:
        """The text of the answer."""
        return " ".join(f"word{self.number}x{count}" for count in range(8))

    def script(self, script: Callable[..., Any]) -> None:
        """Adds a script with the answer, which only this stream's request matches."""
        turn = {"calls": [self.call]} if self.call else {"say": self.text}
        script(**turn, when=When(user=re.escape(self.key)), name=self.key)

    def request(self, model: str) -> dict[str, Any]:
        """Returns the arguments for the SDK's `create`."""
        tool = RESPONSES_TOOL if self.api == "responses" else CHAT_TOOL
        return request_of(self.api, model, f"This is {self.key}", tools=[tool])

    def check(self, events: list[Any]) -> None:
        """Asserts that the stream has its own answer, and no part of another stream's."""
        accumulator = ResponseAccumulator() if self.api == "responses" else ChatAccumulator()
        for event in events:
            accumulator.feed(event)
        answer = answer_of(self.api, accumulator.body)
        if self.call is None:
            assert answer.text.strip() == self.text
            return
        (call,) = answer.calls
        assert call.values == self.call.arguments


async def events_of(client: AsyncOpenAI, case: StreamCase, model: str) -> list[Any]:
    """Returns the events of one stream."""
    create: Any = client.responses.create if case.api == "responses" else client.chat.completions.create
    return [event async for event in await create(**case.request(model))]


@pytest.mark.vllm_alone
@pytest.mark.covers("VC-037", "VC-014")
async def test_streams_at_once_do_not_mix(
    vllm_server: VllmServer, async_openai_client: AsyncOpenAI, script: ScriptWriter
) -> None:
    """64 concurrent streams with text and calls are valid and separate, and /health answers meanwhile."""
    every = [StreamCase(number) for number in range(AT_ONCE)]
    for case in every:
        await asyncio.to_thread(case.script, script)
    done = asyncio.Event()

    async def watch_health() -> int:
        times = 0
        endpoint = vllm_server.endpoint
        headers = endpoint.headers_for(None)
        async with httpx2.AsyncClient(headers=headers, timeout=DRAIN_S, **endpoint.connecting) as client:
            while not done.is_set():
                assert (await client.get(endpoint.url_for("/health"))).status_code == 200
                times += 1
                await asyncio.sleep(0.05)
        return times

    health = asyncio.create_task(watch_health())
    streams = await asyncio.gather(
        *(events_of(async_openai_client, case, vllm_server.model) for case in every)
    )
    done.set()
    assert await health >= 1
    for case, events in zip(every, streams, strict=True):
        assert not counting(vllm_server, events)
        case.check(events)


def counting(server: VllmServer, events: list[Any]) -> list[Finding]:
    """Returns the findings about a stream that are not known deviations."""
    known = known_deviations(server.entry.name, server.vllm_version)
    findings = apply_known(validate_stream(events), known, server.vllm_version)
    return [finding for finding in findings if finding.counts]


@pytest.mark.covers("VC-037")
def test_basics(vllm_server: VllmServer) -> None:
    """Checks /version and /health, and that a request must be JSON."""
    endpoint = vllm_server.endpoint
    assert endpoint.get("/health", timeout=DRAIN_S).status_code == 200
    version = endpoint.get("/version", timeout=DRAIN_S).json()["version"]
    assert version.startswith(vllm_server.vllm_version.split("+")[0])
    for path in PATHS.values():
        answer = endpoint.post(
            path,
            data=json.dumps({"model": vllm_server.model}),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            timeout=DRAIN_S,
        )
        assert 400 <= answer.status_code < 500
        assert answer.json()["error"]["message"]


@pytest.mark.covers("VC-038")
def test_metrics_count_tokens(own: Callable[..., Own]) -> None:
    """The counters grow by exactly the usage of the answers, streamed or not, over both APIs."""
    server = own()
    server.book.script("Six words make a short answer.", times=2)

    def counters() -> tuple[float, ...]:
        names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
        stops = server.http.counted("vllm:request_success_total", finished_reason="stop")
        return (*(server.http.counted(name) for name in names), stops)

    assert wait_until(lambda: server.http.counted("vllm:num_requests_running") == 0)
    before = counters()
    chat = server.client.chat.completions.create(
        model=server.server.model, messages=[{"role": "user", "content": "Hi"}]
    )
    events = list(server.client.responses.create(model=server.server.model, input="Hello there", stream=True))
    response = events[-1].response  # type: ignore[union-attr]
    assert chat.usage is not None
    assert response.usage is not None
    wanted = (
        chat.usage.prompt_tokens + response.usage.input_tokens,
        chat.usage.completion_tokens + response.usage.output_tokens,
        2,
    )
    assert wait_until(
        lambda: tuple(after - first for after, first in zip(counters(), before, strict=True)) == wanted
    ), f"{before} -> {counters()}, wanted {wanted} more"


# keep-alive


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-040")
def test_comments_keep_an_idle_stream_alive(own: Callable[..., Own]) -> None:
    """Keep-alive comments are sent only while the stream is idle, and no data is lost."""
    server = own("--sse-keep-alive-interval", "1", "--max-num-seqs", "1")
    server.book.script(LONG, when=When(user="first"), expect="truncated")
    server.book.script("At last.", when=When(user="second"))
    waited: list[str] = []

    def second() -> None:
        with server.http.open("chat", "The second of two") as response:
            waited.extend(response.iter_lines())

    with server.http.open("chat", "The first of two") as first:
        lines = first.iter_lines()
        next(lines)
        waiting = threading.Thread(target=second)
        waiting.start()
        busy = list(takewhile(lambda _: not comments_of(waited), lines))
    waiting.join(DRAIN_S)
    assert comments_of(waited)
    last_comment = max(waited.index(comment) for comment in comments_of(waited))
    assert last_comment < waited.index(
        next(line for line in waited if line.startswith("data:") and "At" in line)
    )
    assert waited[-2:] == ["data: [DONE]", ""] or waited[-1] == "data: [DONE]"
    assert not comments_of(busy)
    events = list(parse_sse(["\n".join(waited).encode() + b"\n\n"]))
    assert not counting(server.server, events)
    server.book.verify()


def comments_of(lines: list[str]) -> list[str]:
    """Returns the comments among the lines of a stream."""
    return [line for line in lines if line.startswith(":")]


# shutdown and restart


@pytest.fixture
def mortal(
    _vllm_target_server: VllmServer, _vllm_seed: int, _vllm_reservation: None, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Own]]:
    """Starts a server for one test, which may stop it."""
    assert isinstance(_vllm_target_server, RemoteServer)
    target = _vllm_target_server
    with contextlib.ExitStack() as stack:

        def start(*args: str) -> Own:
            server = RemoteServer(target.entry, lane="scripted", vllm=target.environment, args=args)
            stack.enter_context(server)
            book = ScriptBook(server.endpoint, server.entry)
            return Own(server, book, Http(book.endpoint, server.model))

        yield start


def gone(pids: set[int]) -> bool:
    """Whether none of the processes is running."""
    return not [pid for pid in pids if psutil.pid_exists(pid) and _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def begun(chunks: Iterator[bytes]) -> list[bytes]:
    """Returns the chunks up to the first text: events may come before the engine has the request."""
    received: list[bytes] = []
    while b"word" not in b"".join(received):
        received.append(next(chunks))
    return received


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-039")
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_shutdown_finishes_open_streams(api: str, mortal: Callable[..., Own]) -> None:
    """With --shutdown-timeout the server finishes an open stream."""
    server = mortal("--shutdown-timeout", str(DRAIN_S))
    server.book.script(FEW)
    pids = tree_pids(server.server.pid)
    with server.http.open(api, "Go on and on") as response:
        chunks = response.iter_bytes()
        received = begun(chunks)
        os.kill(server.server.pid, signal.SIGTERM)
        received += list(chunks)
    events = list(parse_sse(received))
    assert not counting(server.server, events)
    assert f'"{"stop" if api == "chat" else "completed"}"' in events[-2 if api == "chat" else -1].data
    assert wait_until(lambda: gone(pids), DRAIN_S)


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-039")
def test_shutdown_refuses_new_requests(mortal: Callable[..., Own]) -> None:
    """During the shutdown a new request gets an error or no connection, so that the client tries elsewhere.

    A stopped server refuses as well, so the server must still be running; silence is not a refusal.
    """
    server = mortal("--shutdown-timeout", str(DRAIN_S))
    server.book.script(LONG, when=When(user="on and on"))
    server.book.script("Here I am.", when=When(user="Are you there"), times=None)

    def refuses() -> bool:
        with (
            contextlib.suppress(httpx2.NetworkError, httpx2.RemoteProtocolError),
            server.http.open("chat", "Are you there?", stream=False) as answer,
        ):
            answer.read()
            return answer.status_code >= 500
        return True

    with server.http.open("chat", "Go on and on") as response:
        chunks = response.iter_bytes()
        next(chunks)
        os.kill(server.server.pid, signal.SIGTERM)
        assert wait_until(refuses)
        assert not gone({server.server.pid})


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-039")
def test_shutdown_at_once_leaves_no_process(mortal: Callable[..., Own]) -> None:
    """Without a shutdown timeout, the server leaves no process, even if a client then disconnects."""
    server = mortal()
    server.book.script(LONG, expect="truncated")
    pids = tree_pids(server.server.pid)
    with server.http.open("chat", "Go on and on") as response:
        lines = response.iter_lines()
        data_lines(lines, 3)
        os.kill(server.server.pid, signal.SIGTERM)
    assert wait_until(lambda: gone(pids))


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-039")
@pytest.mark.vllm_known_defect("shutdown-leaves-streams-open")
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_shutdown_ends_open_streams(api: str, mortal: Callable[..., Own]) -> None:
    """An open stream ends with an error or is closed; the engine is suspended, so it cannot finish first.

    A server that has ended its engine and then only sleeps will not end the stream.
    """
    server = mortal()
    server.book.script(LONG, expect="truncated")
    with server.http.open(api, "Go on and on") as response:
        chunks = response.iter_bytes()
        received = begun(chunks)
        with held_still(server.server) as engine:
            os.kill(server.server.pid, signal.SIGTERM)
            reading = in_a_thread(lambda: received.extend(chunks))
            assert wait_until(lambda: reading.done() or gone({engine}))
            assert wait_until(lambda: reading.done() or sleeps(server.server.pid))
        assert reading.done(), "the engine is gone, the server sleeps, and the stream is open"
    wire = b"".join(received)
    assert b'"finish_reason":"stop"' not in wire
    assert b"response.completed" not in wire


def sleeps(pid: int) -> bool:
    """Whether a process, looked at often, always sleeps."""
    process = psutil.Process(pid)
    for _ in range(LOOKS):
        time.sleep(LOOK_EVERY_S)
        if process.status() != psutil.STATUS_SLEEPING:
            return False
    return True


@contextlib.contextmanager
def held_still(server: RemoteServer) -> Iterator[int]:
    """Suspends the engine's process, yields its id, and resumes it at the end if it still exists."""
    engine = next(
        child
        for child in psutil.Process(server.pid).children(recursive=True)
        if "EngineCore" in " ".join(child.cmdline())
    )
    engine.suspend()
    yield engine.pid
    with contextlib.suppress(psutil.Error):
        engine.resume()


@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-039")
def test_restart_forgets(mortal: Callable[..., Own]) -> None:
    """A restart loses stored responses and their turns, and resets the counters."""
    server = mortal()
    server.book.script("Paris.")
    stored = server.client.responses.create(model=server.server.model, input="Capital of France?")
    assert server.client.responses.retrieve(stored.id).id == stored.id
    server.server.restart()
    book = ScriptBook(server.server.endpoint, server.server.entry)
    client = book.client()
    for again in (
        lambda: client.responses.retrieve(stored.id),
        lambda: client.responses.cancel(stored.id),
        lambda: client.responses.create(
            model=server.server.model, input="And of Italy?", previous_response_id=stored.id
        ),
    ):
        with pytest.raises(openai.NotFoundError):
            again()
    assert Http(book.endpoint, server.server.model).counted("vllm:generation_tokens_total") == 0
    book.script("Rome.")
    assert "Rome." in client.responses.create(model=server.server.model, input="Italy?").output_text
