"""A request as bytes, and what comes as bytes, each with its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import httpx

from vllm_harness.endpoint import API_PATHS, Endpoint, tls
from vllm_harness.extras.gateways.answers import Answer, Seen, read_answer
from vllm_harness.protocol.core.events import Api, Json
from vllm_harness.scenarios.sending import MAX_ANSWER

_SECRET_HEADERS = frozenset({"set-cookie", "authorization", "x-api-key"})
LEAVES_AFTER = 5
"""Pieces of a stream that a client reads before it leaves."""
WAITS_S = 0.5
"""How long a client that asked for no stream waits before it leaves."""


@dataclass(frozen=True)
class Exchange:
    """A request, and what came.

    Attributes:
        name: of the case, its API, and the number of the request in it.
        api: of the request.
        request: its body.
        status: of HTTP; 0 where no answer came.
        headers: of the answer, without secrets.
        chunks: seconds after the request, and bytes, as they came.
        broken: how it ended, where it did not end well.
        left: whether the client left before the end.
        seen: the requests that the server got for it; None where nobody can say.
    """

    name: str
    api: Api
    request: Json
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[tuple[float, bytes], ...] = ()
    broken: str = ""
    left: bool = False
    seen: tuple[Seen, ...] | None = None

    @property
    def streamed(self) -> bool:
        """Whether the request asked for a stream."""
        return self.request.get("stream") is True

    @property
    def answer(self) -> Answer:
        """What came, as events or a body."""
        return read_answer(
            self.api,
            self.streamed,
            self.status,
            self.headers,
            self.chunks,
            broken=self.broken,
            model=str(self.request.get("model")),
            seen=self.seen,
            left=self.left,
        )


def http_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """A client of an address; it never retries."""
    return httpx.AsyncClient(
        base_url=endpoint.base_url,
        headers={"accept-encoding": "identity"},
        timeout=endpoint.request_s,
        verify=tls(),
        # a connection for each exchange: the server may close a kept one just as it is used again
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
    )


async def send(
    client: httpx.AsyncClient, name: str, api: Api, request: Json, headers: Mapping[str, str], *, leaves: bool
) -> Exchange:
    """Sends a request, and reads the answer to its end, or until the client leaves.

    Args:
        headers: of the request.
        leaves: the client closes the connection before the end.
    """
    exchange = Exchange(name, api, request, left=leaves)
    limit = WAITS_S if leaves and not exchange.streamed else None
    try:
        async with asyncio.timeout(limit):
            return await _read(client, exchange, headers, leaves)
    except TimeoutError:
        return exchange


async def _read(
    client: httpx.AsyncClient, exchange: Exchange, headers: Mapping[str, str], leaves: bool
) -> Exchange:
    started = time.monotonic()
    chunks: list[tuple[float, bytes]] = []
    size = 0
    try:
        path = API_PATHS[exchange.api]
        async with client.stream("POST", path, json=exchange.request, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name not in _SECRET_HEADERS}
            exchange = replace(exchange, status=answer.status_code, headers=kept)
            async for chunk in answer.aiter_bytes():
                chunks.append((round(time.monotonic() - started, 4), chunk))
                size += len(chunk)
                if size > MAX_ANSWER:
                    exchange = replace(exchange, broken=f"the answer is larger than {MAX_ANSWER} bytes")
                if exchange.broken or (leaves and len(chunks) >= LEAVES_AFTER):
                    break
    except httpx.HTTPError as error:
        exchange = replace(exchange, broken=f"{type(error).__name__}: {error}")
    return replace(exchange, chunks=tuple(chunks))
