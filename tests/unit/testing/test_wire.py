"""The hooks for the openai client change requests, and observe the part of each answer that was read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx2
import pytest

from vllm_harness._testing.wire import WireTap


class Echo(BaseHTTPRequestHandler):
    """Answers with the body of the request."""

    def do_POST(self) -> None:
        """Sends the body back."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *arguments: Any) -> None:
        """Logs nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of the running server."""
    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Seen:
    """A WireTap that adds a seed to requests, and the exchanges that it observes."""

    def __init__(self) -> None:
        self.all: list[tuple[dict[str, Any], int, bytes]] = []
        self.tap = WireTap(lambda body: {**body, "seed": 3}, lambda *seen: self.all.append(seen))


def test_requests_are_changed_and_answers_observed(url: str) -> None:
    seen = Seen()
    with httpx2.Client(event_hooks=seen.tap.hooks()) as client:
        answer = client.post(url, json={"input": "hi"})
    assert answer.json() == {"input": "hi", "seed": 3}
    assert seen.all == [({"input": "hi", "seed": 3}, 200, json.dumps(answer.json()).encode())]


async def test_an_async_client_is_observed(url: str) -> None:
    seen = Seen()
    async with httpx2.AsyncClient(event_hooks=seen.tap.async_hooks()) as client:
        answer = await client.post(url, json={"input": "hi"})
    assert answer.json()["seed"] == 3
    assert [body for body, _, _ in seen.all] == [{"input": "hi", "seed": 3}]


def test_a_stream_that_was_left_early_is_observed_once(url: str) -> None:
    seen = Seen()
    with (
        httpx2.Client(event_hooks=seen.tap.hooks()) as client,
        client.stream("POST", url, json={"input": "x" * 1_000_000}) as response,
    ):
        next(response.iter_raw())
    ((_, _, data),) = seen.all
    assert data.startswith(b'{"input": "xxx')


@pytest.mark.parametrize("content", [b"", b"{", b"[1]"])
def test_other_bodies_are_not_observed(content: bytes, url: str) -> None:
    seen = Seen()
    with httpx2.Client(event_hooks=seen.tap.hooks()) as client:
        assert client.post(url, content=content).content == content
        client.get(url)
    assert seen.all == []
