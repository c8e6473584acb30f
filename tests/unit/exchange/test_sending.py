"""Sending a request and reading its answer within limits, sync and async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vllm_harness._exchange import pending
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.sending import Outgoing, async_http_client, http_client, send, send_async
from vllm_harness._protocol import Exchange

EVENTS = [f'data: {{"n": {number}}}\n\n'.encode() for number in range(4)]
Send = Callable[[Outgoing], Exchange]


class _Server(BaseHTTPRequestHandler):
    """Streams events; `/truncated` stops too early, `/large` sends a body, `/echo` returns the request."""

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        if self.path in ("/echo", "/large"):
            content = b"x" * 100 if self.path == "/large" else f'"{dict(self.headers)}"'.encode() + body
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        self.send_header("content-type", "text/event-stream")
        if self.path == "/truncated":
            self.send_header("content-length", "1000")
        self.end_headers()
        for event in EVENTS:
            self.wfile.write(event)
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    """The endpoint of a running `_Server`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Endpoint(f"http://127.0.0.1:{server.server_port}", api_key="k", headers=(("X-Team", "a"),))
        server.shutdown()


def sync(outgoing: Outgoing) -> Exchange:
    """Sends a request with a sync client."""
    with http_client(outgoing.endpoint) as client:
        return send(client, outgoing)


def unsync(outgoing: Outgoing) -> Exchange:
    """Sends a request with an async client."""

    async def run() -> Exchange:
        async with async_http_client(outgoing.endpoint) as client:
            return await send_async(client, outgoing)

    return asyncio.run(run())


both = pytest.mark.parametrize("by", [sync, unsync])


@both
def test_stream_is_read_to_its_end(by: Send, endpoint: Endpoint) -> None:
    exchange = by(Outgoing(endpoint, "/v1/messages", {"model": "m"}))
    assert (exchange.api, exchange.request, exchange.status) == ("messages", {"model": "m"}, 200)
    assert exchange.json_events == [{"n": number} for number in range(4)]
    assert exchange.content == b"".join(EVENTS)
    assert exchange.ok
    assert not exchange.left
    times = [chunk.at_s for chunk in exchange.chunks]
    assert times == sorted(times)
    assert exchange.seconds is not None
    assert exchange.seconds >= times[-1]


@both
def test_client_disconnects_after_some_events(by: Send, endpoint: Endpoint) -> None:
    exchange = by(Outgoing(endpoint, "/stream", {}, leaves_after=2))
    assert exchange.left
    assert not exchange.broken
    assert len(exchange.json_events) >= 2


@both
def test_truncated_stream_keeps_its_events(by: Send, endpoint: Endpoint) -> None:
    exchange = by(Outgoing(endpoint, "/truncated", {}))
    assert exchange.broken.startswith("RemoteProtocolError: ")
    assert len(exchange.json_events) == 4
    assert not exchange.ok


@both
def test_oversized_answer_is_broken(by: Send, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "MAX_ANSWER", 50)
    exchange = by(Outgoing(endpoint, "/large", {}))
    assert exchange.broken == "the answer is larger than 50 bytes"


@both
def test_key_headers_and_content_are_sent(by: Send, endpoint: Endpoint) -> None:
    sent = Outgoing(endpoint, "/echo", content="{no", headers={"X-Team": "b", "X-Own": "c"})
    echoed = by(sent).content.decode().lower()
    assert echoed.endswith('"{no')
    for header in (
        "'authorization': 'bearer k'",
        "'x-team': 'b'",
        "'x-own': 'c'",
        "'accept-encoding': 'identity'",
    ):
        assert header in echoed


@both
def test_request_without_an_answer(by: Send, endpoint: Endpoint) -> None:
    exchange = by(Outgoing(replace(endpoint, base_url="http://127.0.0.1:9"), "/v1/messages", {}))
    assert (exchange.status, exchange.broken.partition(":")[0]) == (0, "ConnectError")
