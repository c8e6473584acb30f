"""The sessions of the harness's own requests: kept for a moment, by one thread of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vllm_harness._exchange import endpoint
from vllm_harness._exchange.endpoint import SPARE_S, Endpoint


@pytest.fixture
def sessions() -> endpoint._Sessions:
    return endpoint._Sessions()


def test_a_session_is_kept_and_asks_no_proxy(sessions: endpoint._Sessions) -> None:
    kept = sessions.current()
    assert sessions.current() is kept
    assert not kept.trust_env


def test_a_connection_that_the_server_may_be_closing_is_not_used(
    sessions: endpoint._Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(endpoint.time, "monotonic", lambda: now[0])
    kept = sessions.current()
    now[0] += SPARE_S
    assert sessions.current() is kept
    now[0] += SPARE_S + 0.1
    assert sessions.current() is not kept


def test_a_fork_and_a_thread_have_their_own(
    sessions: endpoint._Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = sessions.current()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(sessions.current).result() is not kept
    monkeypatch.setattr(endpoint.os, "getpid", lambda: 1)
    assert sessions.current() is not kept


class _Port(BaseHTTPRequestHandler):
    """Answers with the status of the path, and the port of the connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        port = str(self.client_address[1]).encode()
        self.send_response(int(self.path.strip("/")))
        self.send_header("content-length", str(len(port)))
        self.end_headers()
        self.wfile.write(port)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def answering() -> Iterator[Endpoint]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Port) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Endpoint(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_a_connection_is_kept_unless_the_server_fails(answering: Endpoint) -> None:
    """vLLM closes a connection behind an answer that it owes to an exception."""
    first, refused, failed, next_one = (answering.get(path).text for path in ("/200", "/401", "/500", "/200"))
    assert first == refused == failed
    assert next_one != first
