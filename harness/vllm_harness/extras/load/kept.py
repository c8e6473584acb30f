"""Connections that a load keeps between its requests, as the clients of a real server do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from aiohttp import (
    ClientHandlerType,
    ClientOSError,
    ClientRequest,
    ClientResponse,
    ServerDisconnectedError,
    TCPConnector,
)
from aiohttp.connector import Connection

KEPT_S = 4.0
"""How long an idle connection is kept; vLLM closes it after 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE)."""


@dataclass
class _Line:
    """The use of a connection: the requests that it has carried, and whether the last got any byte."""

    requests: int = 0
    answered: bool = False


class KeptConnections(TCPConnector):
    """Keeps connections, and sends a request again, once, that a server lost with a kept one.

    A server may close an idle connection just as a request arrives on it. If no byte of an answer has come,
    the request is sent again on a new connection (RFC 9112, 9.3.1). A request on a new connection is never
    sent again, and neither is one that got a byte.

    Args:
        on_again: is called when a request is sent again.
        options: further options of `aiohttp.TCPConnector`.
    """

    def __init__(self, on_again: Callable[[], None], **options: Any) -> None:
        super().__init__(keepalive_timeout=KEPT_S, **options)
        self._on_again = on_again
        self._lines: WeakKeyDictionary[Any, _Line] = WeakKeyDictionary()
        self._carriers: dict[ClientRequest, _Line] = {}
        self._again: set[ClientRequest] = set()

    async def connect(self, req: ClientRequest, traces: Any, timeout: Any) -> Connection:
        """Returns a connection for a request: a kept one, unless the request is sent again."""
        connection = await super().connect(req, traces, timeout)
        while req in self._again and connection.protocol in self._lines:
            connection.close()
            connection = await super().connect(req, traces, timeout)
        line = self._lines.get(connection.protocol) or self._watched(connection.protocol)
        line.requests, line.answered = line.requests + 1, False
        self._carriers[req] = line
        return connection

    async def send(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """The middleware of the session that has this connector."""
        try:
            return await handler(request)
        except (ClientOSError, ServerDisconnectedError):
            line = self._carriers.get(request)
            if line is None or line.requests == 1 or line.answered:
                raise
            self._on_again()
            self._again.add(request)
            return await handler(request)
        finally:
            self._carriers.pop(request, None)
            self._again.discard(request)

    def _watched(self, protocol: Any) -> _Line:
        """Watches a new connection for bytes that arrive."""
        line = self._lines[protocol] = _Line()
        received = protocol.data_received

        def data_received(data: bytes) -> None:
            line.answered = True
            received(data)

        protocol.data_received = data_received
        return line
