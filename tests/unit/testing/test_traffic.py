"""The exchanges that each HTTP library makes are recorded; the server is a small fake, not vLLM."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import httpx2
import pytest
import requests

from vllm_harness._scripted.in_server.vllm_harness_names import EXCHANGE_HEADER, OWN_HEADER
from vllm_harness._testing.traffic import TrafficRecorder

PIECES = [b"data: one\n\n", b"data: tw", b"o\n\n"]


class Streams(BaseHTTPRequestHandler):
    """Answers with a stream in chunks, and with a header that repeats the id of the exchange."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Sends the chunks of the answer one by one."""
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Name", self.headers[EXCHANGE_HEADER] or "none")
        self.end_headers()
        for piece in (*PIECES, b""):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()

    def log_message(self, *arguments: Any) -> None:
        """Logs nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of the running server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Streams) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/responses"
        server.shutdown()


@pytest.fixture
def traffic() -> Iterator[TrafficRecorder]:
    """A recorder that is installed while the test runs."""
    recorder = TrafficRecorder()
    recorder.install()
    yield recorder
    recorder.uninstall()


def by_httpx(url: str) -> str:
    """Sends a request with httpx, and returns the exchange id that it had."""
    return httpx.post(url, json={"a": 1}).headers["X-Name"]


def by_httpx_streaming(url: str) -> str:
    """Sends a request with httpx, and reads the answer as it arrives."""
    with httpx.stream("POST", url, json={"a": 1}) as answer:
        assert b"".join(answer.iter_raw()) == b"".join(PIECES)
        return answer.headers["X-Name"]


def by_httpx2(url: str) -> str:
    """Sends a request with httpx2, the library that the openai SDK uses."""
    return str(httpx2.post(url, json={"a": 1}).headers["X-Name"])


def by_async_httpx2(url: str) -> str:
    """Sends a request with the async client of httpx2."""

    async def send() -> str:
        async with httpx2.AsyncClient() as client:
            return str((await client.post(url, json={"a": 1})).headers["X-Name"])

    return asyncio.run(send())


def by_requests(url: str) -> str:
    """Sends a request with the library requests."""
    return requests.post(url, json={"a": 1}, timeout=60).headers["X-Name"]


def by_requests_streaming(url: str) -> str:
    """Sends a request with the library requests, and reads the answer as it arrives."""
    with requests.post(url, json={"a": 1}, timeout=60, stream=True) as answer:
        assert b"".join(answer.iter_content(None)) == b"".join(PIECES)
        return answer.headers["X-Name"]


@pytest.mark.parametrize(
    "send",
    [by_httpx, by_httpx_streaming, by_httpx2, by_async_httpx2, by_requests, by_requests_streaming],
)
def test_an_exchange_is_recorded(traffic: TrafficRecorder, url: str, send: Any) -> None:
    name = send(url)
    (seen,) = traffic.take()
    assert traffic.take() == []
    assert (seen.id, seen.asked.method, seen.url.path, seen.status) == (name, "POST", "/v1/responses", 200)
    assert seen.content.replace(b" ", b"") == b'{"a":1}'
    assert b"".join(chunk for _, chunk in seen.chunks) == b"".join(PIECES)
    times = [after for after, _ in seen.chunks]
    assert times == sorted(times)
    assert seen.seconds is not None
    assert seen.broken == ""


@pytest.mark.parametrize("post", [httpx.post, httpx2.post, requests.post])
def test_an_unanswered_request_is_recorded(traffic: TrafficRecorder, post: Any) -> None:
    with pytest.raises((httpx.ConnectError, httpx2.ConnectError, requests.ConnectionError)):
        post("http://127.0.0.1:9/v1/responses", json={}, timeout=60)
    (seen,) = traffic.take()
    assert seen.status == 0
    assert "Connect" in seen.broken


def test_requests_of_the_harness_and_to_other_hosts_are_not_recorded(
    traffic: TrafficRecorder, url: str
) -> None:
    requests.post(url, headers={OWN_HEADER: "1"}, timeout=60)
    requests.post(url.replace("/v1/responses", "/vllm-harness/books/x"), timeout=60)
    assert traffic.take() == []
    assert traffic.begin("GET", "http://example.org/v1/responses", {}, b"") is None
    of_example = TrafficRecorder(("example.org",))
    assert of_example.begin("GET", "http://example.org/v1/responses", {}, b"") is not None


def methods() -> list[Any]:
    """The methods that a recorder patches."""
    return [httpx.HTTPTransport.handle_request, httpx2.HTTPTransport.handle_request, requests.Session.send]


def test_uninstall_restores_the_libraries(url: str) -> None:
    before = methods()
    traffic = TrafficRecorder()
    traffic.install()
    traffic.uninstall()
    assert methods() == before
    assert by_httpx(url) == "none"
