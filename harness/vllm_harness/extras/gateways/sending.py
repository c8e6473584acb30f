"""Sends a request to one side: the server itself, or the gateway."""

from __future__ import annotations

import asyncio

import httpx2

from vllm_harness._exchange.sending import Outgoing, send_async
from vllm_harness.extras.gateways.answers import SideExchange

_SECRET_HEADERS = frozenset({"set-cookie", "authorization", "x-api-key"})
LEAVES_AFTER = 5
"""The number of events that a client reads before it leaves a stream."""
WAITS_S = 0.5
"""How long a client waits for an answer that is not streamed before it leaves."""


async def send(client: httpx2.AsyncClient, name: str, outgoing: Outgoing, *, leaves: bool) -> SideExchange:
    """Sends a request, and reads the answer to its end, or until the client leaves.

    Args:
        client: the HTTP client.
        name: the name of the exchange.
        outgoing: the request.
        leaves: whether the client closes the connection before the end.
    """
    try:
        async with asyncio.timeout(WAITS_S if leaves and outgoing.leaves_after is None else None):
            exchange = await send_async(client, outgoing)
    except TimeoutError:
        exchange = outgoing.asked
    kept = {key: value for key, value in exchange.headers.items() if key not in _SECRET_HEADERS}
    return SideExchange.of(exchange, name=name, headers=kept, left=leaves)
