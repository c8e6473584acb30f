"""One request: an answer that does not end is given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from vllm_harness.scenarios.sending import send


class _Endless(BaseHTTPRequestHandler):
    """Sends events for ever at `/stream`, and nothing at all elsewhere."""

    def do_POST(self) -> None:
        if self.path != "/stream":
            time.sleep(2)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        while True:
            try:
                self.wfile.write(b"data: {}\n\n")
            except OSError:
                return
            time.sleep(0.02)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """Of such a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("path", ["/stream", "/body"])
def test_an_answer_that_does_not_end_is_given_up(url: str, path: str) -> None:
    with httpx.Client() as client:
        reply = send(client, url + path, {}, {}, limit_s=0.3)
    assert reply.broken == "it did not end within 0.3 s (`limits.request_s` of the model entry)"
    assert bool(reply.chunks) == (path == "/stream")
