"""A proxy that records the exchanges between a client and a server, and forwards streams without delay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vllm_harness._cassettes.answers import answer_of, json_of, response_of, text_of
from vllm_harness._cassettes.format import RecordedExchange, RecordedRequest
from vllm_harness._cassettes.http_server import listen
from vllm_harness._cassettes.writing import CassetteWriter
from vllm_harness._exchange.endpoint import Endpoint, tls
from vllm_harness._exchange.pending import PendingExchange
from vllm_harness._protocol import Exchange

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, ClientSession, web

CONNECT_S = 30.0
_OF_ONE_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "content-length"),
    }
)


class RecordingProxy:
    """Forwards requests to a server, and records each exchange when it has ended.

    Args:
        upstream: the server.
        recording: writes the cassette.
        report: is called with a line about each exchange.
    """

    def __init__(self, upstream: Endpoint, recording: CassetteWriter, report: Callable[[str], None]) -> None:
        self._upstream, self._recording, self._report = upstream, recording, report
        self._session: ClientSession | None = None
        self._count = 0
        self._turns: dict[str, str] = {}

    async def run(self, port: int, ready: Callable[[str], None]) -> None:
        """Forwards and records until a signal. Raises the same errors as `listen`."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=tls(self._upstream.ca))
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, auto_decompress=False, middlewares=(_once,)
        ) as session:
            self._session = session
            await listen(self._handle, port, ready)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        target = request.raw_path
        if request.method == "CONNECT" or target[:1] != "/" or target[:2] == "//":  # may name a host
            self._report(f"refused: {request.method} {target}: not a request for a path")
            return _error(400, "bad_request", "the proxy accepts only requests for a path, as in /v1/models")
        self._count += 1
        forwarded = _ForwardedRequest(f"t{self._count}", request, await request.read())
        try:
            return await self._forward(forwarded)
        except (asyncio.CancelledError, ConnectionResetError):
            forwarded.pending.broken = "the client left"
            raise
        finally:
            self._record(forwarded)

    async def _forward(self, forwarded: _ForwardedRequest) -> web.StreamResponse:
        import aiohttp
        from aiohttp import web
        from yarl import URL

        assert self._session is not None
        request, answer = forwarded.request, None
        url = URL(self._upstream.url_for(request.raw_path), encoded=True)
        headers = {**_end_to_end(request.headers), "Accept-Encoding": "identity"}
        try:
            async with self._session.request(
                request.method, url, data=forwarded.content or None, headers=headers, allow_redirects=False
            ) as upstream:
                forwarded.pending.answered(upstream.status, upstream.headers)
                answer = web.StreamResponse(status=upstream.status, headers=_end_to_end(upstream.headers))
                await answer.prepare(request)
                async for data in upstream.content.iter_any():
                    await answer.write(forwarded.pending.arrived(data))
                await answer.write_eof()
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            if isinstance(error, ConnectionResetError):
                raise  # the client's connection broke, not the server's
            forwarded.pending.ended(error)
            if answer is not None:
                raise
            return _error(502, "bad_gateway", f"the server did not answer: {forwarded.pending.broken}")

    def _record(self, forwarded: _ForwardedRequest) -> None:
        exchange = forwarded.exchange(self._turns)
        self._recording.add(exchange)
        answer = answer_of(exchange)
        if answer is not None and answer.id:
            self._turns[answer.id] = exchange.turn
        ended = forwarded.pending.broken or f"HTTP {forwarded.pending.status}"
        self._report(f"{exchange.turn}: {exchange.request.method} {exchange.request.path}: {ended}")


class _ForwardedRequest:
    """A request, and the part of its answer that has arrived so far."""

    def __init__(self, turn: str, request: web.Request, content: bytes) -> None:
        self.turn, self.request, self.content = turn, request, content
        self.pending = PendingExchange(Exchange(method=request.method, path=request.raw_path))

    def exchange(self, turns: Mapping[str, str]) -> RecordedExchange:
        """Makes the recorded exchange; `turns` maps the ids of earlier answers to their turns."""
        body = json_of(self.content)
        previous = body.get("previous_response_id") if isinstance(body, dict) else None
        request = RecordedRequest(
            method=self.request.method,
            path=self.request.raw_path,
            headers=dict(self.request.headers),
            body=body,
            text=text_of(self.content) if body is None and self.content else None,
        )
        response, after = response_of(self.pending.exchange), turns.get(str(previous))
        return RecordedExchange(turn=self.turn, after=after, request=request, response=response)


async def _once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Sends a request once; aiohttp itself would send a GET again after any break of the connection."""
    import aiohttp

    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(f"{type(error).__name__}: {error}") from error


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_ONE_HOP}


def _error(status: int, kind: str, message: str) -> web.Response:
    from aiohttp import web

    error = {"message": message, "type": kind, "param": None, "code": None}
    return web.Response(status=status, text=json.dumps({"error": error}), content_type="application/json")
