"""Connections are reused for a short time, within one thread of one process."""

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


def test_session_is_reused_without_a_proxy(sessions: endpoint._Sessions) -> None:
    session = sessions.current()
    assert sessions.current() is session
    assert not session.trust_env


def test_connection_is_not_reused_when_the_server_may_close_it(
    sessions: endpoint._Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(endpoint.time, "monotonic", lambda: now[0])
    session = sessions.current()
    now[0] += SPARE_S
    assert sessions.current() is session
    now[0] += SPARE_S + 0.1
    assert sessions.current() is not session


def test_threads_and_forks_have_their_own_sessions(
    sessions: endpoint._Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = sessions.current()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(sessions.current).result() is not session
    monkeypatch.setattr(endpoint.os, "getpid", lambda: 1)
    assert sessions.current() is not session


class _Port(BaseHTTPRequestHandler):
    """Answers with the status that the path names, and with the client's port as the body."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        port = str(self.client_address[1]).encode()
        self.send_response(int(self.path.strip("/")))
        self.send_header("content-length", str(len(port)))
        self.end_headers()
        self.wfile.write(port)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


@pytest.fixture
def answering() -> Iterator[Endpoint]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Port) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Endpoint(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_connection_is_reused_unless_the_server_fails(answering: Endpoint) -> None:
    """The connection is not reused after a 5xx, since vLLM closes it if an exception caused the answer."""
    first, refused, failed, next_one = (answering.get(path).text for path in ("/200", "/401", "/500", "/200"))
    assert first == refused == failed
    assert next_one != first
