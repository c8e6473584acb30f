"""Reads, times and validates one streamed answer while it arrives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from vllm_harness._exchange.pending import PendingExchange
from vllm_harness._exchange.sending import Outgoing
from vllm_harness._protocol import (
    ChatAccumulator,
    Exchange,
    Finding,
    MessageAccumulator,
    ProtocolInputError,
    ResponseAccumulator,
    SSEEvent,
    SSEParser,
    StreamValidator,
)
from vllm_harness._protocol.core.events import Api, Json
from vllm_harness._protocol.core.timing import carries_text
from vllm_harness._protocol.responses import schema


@dataclass(frozen=True)
class StreamResult:
    """An answer and its timings.

    Attributes:
        exchange: the request and its answer, with parsed events.
        body: the object that a stream's events add up to, or the body of an unstreamed answer, if any.
        findings: the findings in the stream, according to the rules of its API.
        first_s: the seconds until the first text, reasoning or part of a call; None if nothing came.
        gaps_s: the seconds between successive arrivals of events.
        events: the number of events.
    """

    exchange: Exchange
    body: Mapping[str, Any] | None = None
    findings: list[Finding] = field(default_factory=list)
    first_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    events: int = 0


class StreamReader:
    """Reads a stream from its chunks of bytes, as they arrive.

    Args:
        api: the API with whose rules the stream is validated.
        request: the request's body.
    """

    def __init__(self, api: Api, request: Json) -> None:
        self.events: list[SSEEvent] = []
        self.first_s: float | None = None
        self.gaps_s: list[float] = []
        self._parser = SSEParser()
        self._validator = StreamValidator(api=api, request=request)
        self._sum = _SUMS[api]()
        self._last_s: float | None = None

    def feed(self, at_s: float, data: bytes) -> None:
        """Reads the next bytes, which arrived `at_s` seconds after the request.

        Raises:
            ProtocolInputError: an event is too large.
        """
        events = self._parser.feed(data)
        if not events:
            return
        if self._last_s is not None:
            self.gaps_s.append(at_s - self._last_s)
        self._last_s = at_s
        for event in events:
            self._read(at_s, event)

    def close(self, at_s: float, *, whole: bool) -> None:
        """Ends the stream; `whole` is False if the client left or the connection broke."""
        for event in self._parser.close() if whole else ():
            self._read(at_s, event)
        if whole:
            self._validator.close()

    @property
    def findings(self) -> list[Finding]:
        """The findings so far."""
        return self._validator.findings

    @property
    def body(self) -> Json | None:
        """The object that the events so far add up to; for Responses, the object in the terminal event.

        The validator compares the deltas of Responses with that object.
        """
        return self._sum.whole

    def _read(self, at_s: float, event: SSEEvent) -> None:
        self.events.append(event)
        value = self._validator.read(event)
        if value is None:
            return
        if self.first_s is None and carries_text(value):
            self.first_s = at_s
        if not isinstance(self._sum, ResponseAccumulator) or value.get("type") in schema.TERMINAL:
            self._sum.feed(value)


_SUMS: Mapping[Api, type[ResponseAccumulator | ChatAccumulator | MessageAccumulator]] = {
    "responses": ResponseAccumulator,
    "chat": ChatAccumulator,
    "messages": MessageAccumulator,
}


async def send_and_read(
    session: aiohttp.ClientSession, outgoing: Outgoing, api: Api, *, leaves_after: int | None = None
) -> StreamResult:
    """Sends a request, without retries of its own, and reads its answer.

    Args:
        session: the HTTP session.
        outgoing: the request.
        api: the API with whose rules the answer is validated.
        leaves_after: close the connection after more events than this; if None, read to the end.
    """
    pending, reader = PendingExchange(outgoing.asked), StreamReader(api, outgoing.body)
    url, headers = outgoing.endpoint.url_for(outgoing.path), outgoing.arguments["headers"]
    try:
        async with session.post(url, json=outgoing.body, headers=headers) as answer:
            pending.answered(answer.status, answer.headers)
            async for data in answer.content.iter_any():
                pending.arrived(data)
                if pending.streamed:
                    reader.feed(pending.elapsed_s, data)
                    pending.left = leaves_after is not None and len(reader.events) > leaves_after
                if pending.broken or pending.left:
                    answer.close()
                    break
    except TimeoutError:
        pending.broken = "timeout"
    except (aiohttp.ClientError, OSError, ProtocolInputError) as error:
        pending.ended(error)
    pending.ended()
    if not pending.streamed:
        return StreamResult(exchange := pending.exchange, exchange.body)
    reader.close(pending.elapsed_s, whole=not (pending.broken or pending.left))
    return StreamResult(
        pending.read(reader.events),
        reader.body,
        reader.findings,
        reader.first_s,
        reader.gaps_s,
        len(reader.events),
    )
