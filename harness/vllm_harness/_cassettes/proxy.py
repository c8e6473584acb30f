"""A proxy that records what somebody else's client sends to a server; streams pass through as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vllm_harness._cassettes.answers import answer_of, json_of, response_of, text_of
from vllm_harness._cassettes.format import RecordedExchange, RecordedRequest
from vllm_harness._cassettes.listening import listen
from vllm_harness._cassettes.writing import CassetteWriter
from vllm_harness._exchange.pending import PendingExchange
from vllm_harness._protocol import Exchange

if TYPE_CHECKING:
    from aiohttp import ClientSession, web

CONNECT_S = 30.0
_OF_ONE_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "content-length"),
    }
)


class RecordingProxy:
    """Passes requests on to a server, and keeps each with its answer as soon as that has ended.

    Args:
        upstream: URL of the server, without `/v1`.
        recording: where the exchanges go.
        tell: gets a line for each exchange.
    """

    def __init__(self, upstream: str, recording: CassetteWriter, tell: Callable[[str], None]) -> None:
        self._upstream, self._recording, self._tell = upstream.rstrip("/"), recording, tell
        self._session: ClientSession | None = None
        self._count = 0
        self._turns: dict[str, str] = {}

    async def run(self, port: int, ready: Callable[[str], None]) -> None:
        """Passes on and records until SIGINT or SIGTERM comes. Raises as `listen`."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, auto_decompress=False
        ) as session:
            self._session = session
            await listen(self._handle, port, ready)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._count += 1
        exchange = _Passing(f"t{self._count}", request, await request.read())
        try:
            return await self._pass_on(exchange)
        except (asyncio.CancelledError, ConnectionResetError):
            exchange.came.broken = "the client left"
            raise
        finally:
            self._keep(exchange)

    async def _pass_on(self, passing: _Passing) -> web.StreamResponse:
        import aiohttp
        from aiohttp import web
        from yarl import URL

        assert self._session is not None
        request, answer = passing.request, None
        url = URL(self._upstream + request.raw_path, encoded=True)
        headers = {**_passed_on(request.headers), "Accept-Encoding": "identity"}
        try:
            async with self._session.request(
                request.method, url, data=passing.content or None, headers=headers, allow_redirects=False
            ) as came:
                passing.came.answered(came.status, came.headers)
                answer = web.StreamResponse(status=came.status, headers=_passed_on(came.headers))
                await answer.prepare(request)
                async for data in came.content.iter_any():
                    await answer.write(passing.came.arrived(data))
                await answer.write_eof()
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            if isinstance(error, ConnectionResetError):
                raise  # the client's
            passing.came.ended(error)
            if answer is not None:
                raise
            return _bad_gateway(passing.came.broken)

    def _keep(self, passing: _Passing) -> None:
        exchange = passing.exchange(self._turns)
        self._recording.add(exchange)
        answer = answer_of(exchange)
        if answer is not None and answer.id:
            self._turns[answer.id] = exchange.turn
        ended = passing.came.broken or f"HTTP {passing.came.status}"
        self._tell(f"{exchange.turn}: {exchange.request.method} {exchange.request.path}: {ended}")


class _Passing:
    """An exchange on its way."""

    def __init__(self, turn: str, request: web.Request, content: bytes) -> None:
        self.turn, self.request, self.content = turn, request, content
        self.came = PendingExchange(Exchange(method=request.method, path=request.raw_path))

    def exchange(self, turns: Mapping[str, str]) -> RecordedExchange:
        """What is known of it by now; `turns` are those of earlier answers, by their ids."""
        body = json_of(self.content)
        previous = body.get("previous_response_id") if isinstance(body, dict) else None
        request = RecordedRequest(
            method=self.request.method,
            path=self.request.raw_path,
            headers=dict(self.request.headers),
            body=body,
            text=text_of(self.content) if body is None and self.content else None,
        )
        response, after = response_of(self.came.exchange), turns.get(str(previous))
        return RecordedExchange(turn=self.turn, after=after, request=request, response=response)


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_ONE_HOP}


def _bad_gateway(why: str) -> web.Response:
    from aiohttp import web

    error = {
        "message": f"the server did not answer: {why}",
        "type": "bad_gateway",
        "param": None,
        "code": None,
    }
    return web.Response(status=502, text=json.dumps({"error": error}), content_type="application/json")
