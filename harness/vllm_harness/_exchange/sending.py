"""One request sent, and its whole answer read: sync or async, within limits of time and size."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from vllm_harness._exchange.endpoint import SPARE_S, Endpoint, tls
from vllm_harness._exchange.pending import PendingExchange
from vllm_harness._protocol.conversation.exchange import Exchange
from vllm_harness._protocol.core.sse import SSEParser

RETRY_S = 0.5


@dataclass(frozen=True)
class Outgoing:
    """A request to a server, and how its answer is read.

    Attributes:
        endpoint: of the server; its keys and headers go along.
        path: of the URL, with its query.
        body: JSON; None: none.
        headers: further ones.
        content: a text in place of a body.
        method: of HTTP.
        limit_s: seconds in which the whole answer must come; None: those of the endpoint.
        leaves_after: after how many events of a stream the client leaves.
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
        """In which the whole answer must come."""
        return self.endpoint.request_s if self.limit_s is None else self.limit_s

    @property
    def asked(self) -> Exchange:
        """The request, as yet without an answer."""
        request = self.body if isinstance(self.body, dict) else {}
        return Exchange(request, method=self.method, path=self.path, status=0)

    @property
    def pending(self) -> PendingExchange:
        """The exchange, before it is sent."""
        return PendingExchange(self.asked, parser=None if self.leaves_after is None else SSEParser())

    @property
    def arguments(self) -> dict[str, Any]:
        """For `stream` of a client."""
        own = {name.lower(): value for name, value in self.headers.items()}
        return {
            "method": self.method,
            "url": self.endpoint.url_for(self.path),
            "headers": {**self.endpoint.headers_for(self.asked.api), "accept-encoding": "identity", **own},
            "json": self.body,
            "content": self.content,
            "timeout": self.seconds,
        }


def http_client() -> httpx2.Client:
    """A client for several requests, in any number of threads."""
    limits = httpx2.Limits(max_connections=None, keepalive_expiry=SPARE_S)
    return httpx2.Client(verify=tls(), limits=limits)


def async_http_client() -> httpx2.AsyncClient:
    """A client with a connection for each request, as the server may close a kept one just as it is used."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx2.AsyncClient(verify=tls(), limits=limits)


def send(client: httpx2.Client, outgoing: Outgoing, *, retries: int = 0) -> Exchange:
    """Sends a request, and reads the answer to its end, or as far as it comes.

    Args:
        client: sends it.
        outgoing: the request.
        retries: how often it is sent again where no answer came.
    """
    for _ in range(retries):
        if (exchange := _sent(client, outgoing)).status:
            return exchange
        time.sleep(RETRY_S)
    return _sent(client, outgoing)


def _sent(client: httpx2.Client, outgoing: Outgoing) -> Exchange:
    pending = outgoing.pending
    with _reading(pending, outgoing), client.stream(**outgoing.arguments) as answer:
        pending.answered(answer.status_code, answer.headers)
        for data in answer.iter_raw():
            if _ends_with(data, pending, outgoing):
                break
    return pending.exchange


async def send_async(client: httpx2.AsyncClient, outgoing: Outgoing) -> Exchange:
    """The twin of `send`, without retries."""
    pending = outgoing.pending
    with _reading(pending, outgoing):
        async with client.stream(**outgoing.arguments) as answer:
            pending.answered(answer.status_code, answer.headers)
            async for data in answer.aiter_raw():
                if _ends_with(data, pending, outgoing):
                    break
    return pending.exchange


@contextmanager
def _reading(pending: PendingExchange, outgoing: Outgoing) -> Iterator[None]:
    """Notes how an answer ends."""
    try:
        yield
    except httpx2.TimeoutException as error:
        pending.broken = f"{type(error).__name__}: no end within {outgoing.seconds:g} s"
    except httpx2.HTTPError as error:
        pending.ended(error)
    pending.ended()


def _ends_with(data: bytes, pending: PendingExchange, outgoing: Outgoing) -> bool:
    """Takes the next bytes; whether no more are to be read."""
    pending.arrived(data)
    pending.left = outgoing.leaves_after is not None and pending.events >= outgoing.leaves_after
    if pending.elapsed_s > outgoing.seconds:
        pending.broken = pending.broken or f"ReadTimeout: no end within {outgoing.seconds:g} s"
    return pending.left or bool(pending.broken)
