"""Responses in the background: polling, and streams that differ when they are read again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.sending import Outgoing, http_client
from vllm_harness._protocol import Exchange
from vllm_harness._scenarios.background import ended, replayed

Store = tuple[httpx2.Client, Outgoing]
EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1"}},
    {"type": "response.in_progress", "sequence_number": 1, "response": {"id": "resp_1"}},
    {"type": "response.completed", "sequence_number": 2, "response": {"id": "resp_1"}},
]


class _Store(BaseHTTPRequestHandler):
    """Serves the states of a response one after the other, and its events, except for those in `lost`."""

    states: list[str]
    lost: tuple[str, int]

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "stream" not in query:
            self._send("application/json", json.dumps({"id": "resp_1", "status": self.states.pop(0)}))
            return
        after = query.get("starting_after", [""])[0]
        rest = [each for each in EVENTS if not after or each["sequence_number"] > int(after)]
        kept = rest[: len(rest) - (self.lost[1] if self.lost[0] == after else 0)]
        self._send("text/event-stream", "".join(f"data: {json.dumps(each)}\n\n" for each in kept))

    def _send(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


@pytest.fixture
def store() -> Iterator[tuple[Store, type[_Store]]]:
    """A client, a request to a running store, and the class of the store's handler."""
    handler = type("_OwnStore", (_Store,), {"states": [], "lost": ("none", 0)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, http_client(Endpoint("")) as client:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = Endpoint(f"http://127.0.0.1:{server.server_port}", request_s=60)
        yield (client, Outgoing(endpoint, "/v1/responses")), handler
        server.shutdown()


def created(status: str, http: int = 200) -> Exchange:
    """Makes the exchange that created the response."""
    return Exchange(body={"id": "resp_1", "status": status}, status=http)


def test_a_response_is_polled_until_it_has_ended(store: tuple[Store, type[_Store]]) -> None:
    stored, handler = store
    handler.states = ["queued", "in_progress", "completed", "never fetched"]
    reply = ended(*stored, created("queued"))
    assert reply.body == {"id": "resp_1", "status": "completed"}
    assert handler.states == ["never fetched"]


def test_an_endless_response_times_out(store: tuple[Store, type[_Store]]) -> None:
    (client, creating), handler = store
    handler.states = ["in_progress"]
    assert (
        ended(client, replace(creating, limit_s=0), created("queued")).broken
        == "it was still queued after 0 s"
    )


def test_ended_and_refused_responses_are_not_polled(store: tuple[Store, type[_Store]]) -> None:
    for first in (created("failed"), created("queued", 400)):
        assert ended(*store[0], first) is first


def test_a_stream_is_complete_when_resumed_after_any_event(store: tuple[Store, type[_Store]]) -> None:
    assert replayed(*store[0], EVENTS) == []


@pytest.mark.parametrize(
    ("lost", "what"),
    [
        (("", 1), "the whole stream"),
        (("0", 2), "the stream after event 0"),
        (("1", 1), "the stream after event 1"),
    ],
)
def test_a_stream_that_lacks_an_event_is_a_mismatch(
    lost: tuple[str, int], what: str, store: tuple[Store, type[_Store]]
) -> None:
    stored, handler = store
    handler.lost = lost
    assert [each.what for each in replayed(*stored, EVENTS)] == [what]
