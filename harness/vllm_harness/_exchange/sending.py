"""Sends one request and reads its whole answer, sync or async, within time and size limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.pending import PendingExchange
from vllm_harness._protocol.conversation.exchange import Exchange
from vllm_harness._protocol.core.sse import SSEParser


@dataclass(frozen=True)
class Outgoing:
    """A request to a server, and the limits for reading its answer.

    Attributes:
        endpoint: the server's endpoint, whose API key and headers are sent.
        path: the path of the URL, with its query.
        body: the JSON body; None for no body.
        headers: further headers.
        content: a string that is sent instead of a JSON body.
        method: the HTTP method.
        limit_s: the timeout for the whole answer, in seconds; None for the endpoint's timeout.
        leaves_after: the number of stream events after which the client disconnects; None to read all.
    """

    endpoint: Endpoint
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: str | None = None
    method: str = "POST"
    limit_s: float | None = None
    leaves_after: int | None = None

    @property
    def seconds(self) -> float:
        """The timeout for the whole answer, in seconds."""
        return self.endpoint.request_s if self.limit_s is None else self.limit_s

    @property
    def asked(self) -> Exchange:
        """The request as an exchange without an answer."""
        request = self.body if isinstance(self.body, dict) else {}
        return Exchange(request, method=self.method, path=self.path, status=0)

    @property
    def pending(self) -> PendingExchange:
        """The exchange before the request is sent."""
        return PendingExchange(self.asked, parser=None if self.leaves_after is None else SSEParser())

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments for an HTTP client's `stream` method."""
        own = {name.lower(): value for name, value in self.headers.items()}
        return {
            "method": self.method,
            "url": self.endpoint.url_for(self.path),
            "headers": {**self.endpoint.headers_for(self.asked.api), "accept-encoding": "identity", **own},
            "json": self.body,
            "content": self.content,
            "timeout": self.seconds,
        }


def http_client(endpoint: Endpoint) -> httpx2.Client:
    """An HTTP client that any number of requests and threads can share."""
    return httpx2.Client(**endpoint.connecting)


def async_http_client(endpoint: Endpoint) -> httpx2.AsyncClient:
    """The asynchronous counterpart of `http_client`."""
    return httpx2.AsyncClient(**endpoint.connecting)


def send(client: httpx2.Client, outgoing: Outgoing) -> Exchange:
    """Sends a request once, and reads the answer to its end, or until the connection breaks."""
    pending = outgoing.pending
    with _reading(pending, outgoing), client.stream(**outgoing.arguments) as answer:
        pending.answered(answer.status_code, answer.headers)
        for data in answer.iter_raw():
            if _receive(data, pending, outgoing):
                break
    return pending.exchange


async def send_async(client: httpx2.AsyncClient, outgoing: Outgoing) -> Exchange:
    """The asynchronous counterpart of `send`."""
    pending = outgoing.pending
    with _reading(pending, outgoing):
        async with client.stream(**outgoing.arguments) as answer:
            pending.answered(answer.status_code, answer.headers)
            async for data in answer.aiter_raw():
                if _receive(data, pending, outgoing):
                    break
    return pending.exchange


@contextmanager
def _reading(pending: PendingExchange, outgoing: Outgoing) -> Iterator[None]:
    """Records how an answer ends."""
    try:
        yield
    except httpx2.TimeoutException as error:
        pending.broken = f"{type(error).__name__}: no end within {outgoing.seconds:g} s"
    except httpx2.HTTPError as error:
        pending.ended(error)
    pending.ended()


def _receive(data: bytes, pending: PendingExchange, outgoing: Outgoing) -> bool:
    """Records the next bytes; returns whether reading must stop."""
    pending.arrived(data)
    pending.left = outgoing.leaves_after is not None and pending.events >= outgoing.leaves_after
    if pending.elapsed_s > outgoing.seconds:
        pending.broken = pending.broken or f"ReadTimeout: no end within {outgoing.seconds:g} s"
    return pending.left or bool(pending.broken)
