"""Answers clients from a cassette: each recorded answer once, to the request that it was recorded for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from vllm_harness._cassettes.answers import json_of, text_of
from vllm_harness._cassettes.format import Cassette, RecordedExchange, RecordedResponse
from vllm_harness._cassettes.http_server import listen
from vllm_harness._files.redaction import Redactor
from vllm_harness._protocol.conversation.exchange import EVENT_STREAM
from vllm_harness._protocol.core.differences import differences
from vllm_harness._protocol.core.findings import brief

if TYPE_CHECKING:
    from aiohttp import web

_SHOWN = 3


class CassettePlayer:
    """The exchanges of a cassette, each of which is played once.

    Args:
        cassette: the cassette.
        redactor: redacts the secrets that are redacted in the cassette, so that requests can be compared.

    Attributes:
        misses: the reasons why requests were not answered.
    """

    def __init__(self, cassette: Cassette, redactor: Redactor) -> None:
        self._unplayed = list(cassette.exchanges)
        self._redactor = redactor
        self.misses: list[str] = []

    @property
    def left(self) -> list[str]:
        """The turns that have not been played."""
        return [exchange.turn for exchange in self._unplayed]

    def take(self, method: str, path: str, content: bytes) -> RecordedExchange | str:
        """Finds the next exchange with this request, and marks it as played.

        Args:
            method: the HTTP method.
            path: the path with its query.
            content: the body of the request.

        Returns:
            The exchange, or else the reason why there is none.
        """
        body = self._redactor.value(json_of(content))
        text = self._redactor.value(text_of(content)) if body is None and content else None
        place = self._redactor.text(path)
        alike = [
            each for each in self._unplayed if (each.request.method, each.request.path) == (method, place)
        ]
        for exchange in alike:
            if exchange.request.body == body and exchange.request.text == text:
                self._unplayed.remove(exchange)
                return exchange
        self.misses.append(_why_not(f"{method} {place}", alike, body))
        return self.misses[-1]


def _why_not(request: str, alike: list[RecordedExchange], body: Any) -> str:
    if not alike:
        return f"the cassette has no unplayed {request}"
    differing = {exchange.turn: list(differences(exchange.request.body, body)) for exchange in alike}
    turn = min(differing, key=lambda name: len(differing[name]))
    shown = "; ".join(
        f"{difference.path}: recorded {brief(difference.left)}, requested {brief(difference.right)}"
        for difference in differing[turn][:_SHOWN]
    )
    return f"no recorded {request} is the same; the nearest is turn {turn}: {shown or 'other bytes'}"


async def serve(
    player: CassettePlayer,
    port: int,
    ready: Callable[[str], None],
    report: Callable[[str], None],
    *,
    timed: bool,
) -> None:
    """Answers clients until a signal. Raises the same errors as `listen`.

    Args:
        player: finds the recorded exchange for a request.
        port: the port on this machine; 0 for a free one.
        ready: is called with the server's URL when the server listens.
        report: is called with a line about each request.
        timed: whether to send the bytes of an answer at the recorded times.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        exchange = player.take(request.method, request.raw_path, await request.read())
        if isinstance(exchange, str):
            report(exchange)
            return _miss(exchange)
        report(f"turn {exchange.turn}: {request.method} {request.path}")
        return await _answer(request, exchange.response, timed)

    await listen(handle, port, ready)


async def _answer(request: web.Request, response: RecordedResponse, timed: bool) -> web.StreamResponse:
    from aiohttp import web

    answer = web.StreamResponse(status=response.status or 502, headers=dict(_headers(response)))
    await answer.prepare(request)
    at = 0.0
    for moment, data in _pieces(response):
        if timed:
            await asyncio.sleep(max(0.0, moment - at))
            at = moment
        await answer.write(data)
    if response.broken and request.transport is not None:
        request.transport.abort()  # the recorded answer broke off too
    else:
        await answer.write_eof()
    return answer


def _headers(response: RecordedResponse) -> Iterator[tuple[str, str]]:
    for name, value in response.headers.items():
        if name.lower() in ("content-type", "retry-after", "x-request-id", "request-id"):
            yield name, value
    if response.sse is not None and not response.headers.get("content-type", "").startswith(EVENT_STREAM):
        yield "content-type", EVENT_STREAM


def _pieces(response: RecordedResponse) -> Iterator[tuple[float, bytes]]:
    if response.sse is not None:
        yield from ((chunk.at, chunk.content) for chunk in response.sse)
    elif response.body is not None:
        yield response.seconds or 0.0, json.dumps(response.body, ensure_ascii=False).encode()
    elif response.text is not None:
        text = response.text
        yield response.seconds or 0.0, text.encode() if isinstance(text, str) else text


def _miss(why: str) -> web.Response:
    from aiohttp import web

    error = {"message": why, "type": "not_in_the_cassette", "param": None, "code": None}
    return web.Response(status=404, text=json.dumps({"error": error}), content_type="application/json")
