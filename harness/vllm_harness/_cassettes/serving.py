"""Clients answered from a cassette: each recorded exchange once, by the same request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from vllm_harness._cassettes.answers import json_of, text_of
from vllm_harness._cassettes.format import Cassette, RecordedExchange, RecordedResponse
from vllm_harness._cassettes.listening import listen
from vllm_harness._files.redaction import Redactor
from vllm_harness._protocol.conversation.exchange import EVENT_STREAM
from vllm_harness._protocol.core.differences import differences
from vllm_harness._protocol.core.findings import brief

if TYPE_CHECKING:
    from aiohttp import web

_SHOWN = 3


class Player:
    """The exchanges of a cassette, of which each is played once.

    Args:
        cassette: what was recorded.
        redactor: which knows the secrets that the cassette was written without: a request is compared
            without them.
    """

    def __init__(self, cassette: Cassette, redactor: Redactor) -> None:
        self._left = list(cassette.exchanges)
        self._redactor = redactor
        self.misses: list[str] = []

    @property
    def left(self) -> list[str]:
        """The turns that were never played."""
        return [exchange.turn for exchange in self._left]

    def take(self, method: str, path: str, content: bytes) -> RecordedExchange | str:
        """The next exchange whose request is this one; else why there is none, which counts as a miss.

        Args:
            method: of HTTP.
            path: with its query.
            content: of the request.
        """
        body = self._redactor.value(json_of(content))
        text = self._redactor.value(text_of(content)) if body is None and content else None
        place = self._redactor.text(path)
        alike = [each for each in self._left if (each.request.method, each.request.path) == (method, place)]
        for exchange in alike:
            if exchange.request.body == body and exchange.request.text == text:
                self._left.remove(exchange)
                return exchange
        self.misses.append(_why_not(f"{method} {place}", alike, body))
        return self.misses[-1]


def _why_not(asked: str, alike: list[RecordedExchange], body: Any) -> str:
    if not alike:
        return f"the cassette has no {asked} that was not played yet"
    found = {each.turn: list(differences(each.request.body, body)) for each in alike}
    turn = min(found, key=lambda name: len(found[name]))
    shown = "; ".join(
        f"{each.path}: recorded {brief(each.left)}, asked {brief(each.right)}"
        for each in islice(found[turn], _SHOWN)
    )
    return f"no recorded {asked} is the same; the nearest is turn {turn}: {shown or 'other bytes'}"


async def serve(
    player: Player, port: int, ready: Callable[[str], None], tell: Callable[[str], None], *, timed: bool
) -> None:
    """Answers clients until SIGINT or SIGTERM comes. Raises as `listen`.

    Args:
        player: what is played.
        port: on this machine; 0: a free one.
        ready: gets the address, once it listens.
        tell: gets a line for each request.
        timed: whether the bytes of an answer come at the times at which they came.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        found = player.take(request.method, request.raw_path, await request.read())
        if isinstance(found, str):
            tell(found)
            return _miss(found)
        tell(f"turn {found.turn}: {request.method} {request.path}")
        return await _answer(request, found.response, timed)

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
        request.transport.abort()  # as it ended for the client that was recorded
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
