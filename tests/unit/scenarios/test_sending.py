"""Answers that do not end: requests time out, and a run can be interrupted."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.unit.scenarios.servers import DescribedServer
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.pending import PendingExchange
from vllm_harness._exchange.sending import Outgoing, http_client, send
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.running import run, transports_of

LIMIT_S = 0.3


class _Endless(BaseHTTPRequestHandler):
    """Sends events without end, or nothing at `/silent`; refuses invalid JSON."""

    over: threading.Event
    """Set at the end of a test, so that `/silent` stays silent until then."""
    abandoned: threading.Event
    """Set when a client of the test has left a stream."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/silent":
            self.over.wait()
        elif body == b"{":
            self.send_error(400)
        else:
            self._stream()

    def _stream(self) -> None:
        abandoned = self.abandoned  # of this test, even if its client is missed only during the next one
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"data: {}\n\n")
                time.sleep(0.02)
        except OSError:
            abandoned.set()

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a server whose answers do not end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endless) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _Endless.over, _Endless.abandoned = threading.Event(), threading.Event()
        yield f"http://127.0.0.1:{server.server_port}"
        _Endless.over.set()
        server.shutdown()


def test_an_answer_that_does_not_begin_times_out(url: str) -> None:
    with http_client(Endpoint(url)) as client:
        exchange = send(client, Outgoing(Endpoint(url), "/silent", {}, limit_s=LIMIT_S))
    assert exchange.broken == f"ReadTimeout: no end within {LIMIT_S:g} s"
    assert not exchange.chunks


def test_an_endless_answer_times_out(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk that arrives takes a second of this clock, so the sixty-first is too late."""
    monkeypatch.setattr(PendingExchange, "elapsed_s", property(lambda pending: float(len(pending.chunks))))
    with http_client(Endpoint(url)) as client:
        exchange = send(client, Outgoing(Endpoint(url), "/stream", {}, limit_s=60))
    assert exchange.broken == "ReadTimeout: no end within 60 s"
    assert len(exchange.chunks) == 61


def test_an_interrupt_does_not_wait_for_the_turn(url: str, request: pytest.FixtureRequest) -> None:
    """An interrupt soon after the start of a turn ends the run, although the turn goes on."""
    entry, lines = load_models().get("smollm2-135m"), list[str]()

    def progress(line: str) -> None:
        lines.append(line)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)

    server = DescribedServer(entry, "live", endpoint=Endpoint(url, request_s=10))
    story = Scenario.model_validate({"scenario": 1, "turns": [{"name": "hi", "user": "Hi"}]})
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGALRM, before))
    with pytest.raises(KeyboardInterrupt):
        run(story, server, transports_of(["chat"], (True,)), progress=progress)
    assert not _Endless.abandoned.is_set()
    assert lines == ["chat-stream: turn 1 of 1, hi"]
