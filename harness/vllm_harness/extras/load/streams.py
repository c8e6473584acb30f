"""One streamed answer: read, timed, and validated while it comes."""

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
    """An answer and its figures.

    Attributes:
        exchange: as it was; its events are read already.
        body: what a stream adds up to, or the body of an answer in one piece; None where that is nothing.
        findings: of the stream, by the rules of its API.
        first_s: seconds until the first words, thoughts or part of a call; None where none came.
        gaps_s: seconds between the arrivals that brought events.
        events: how many came.
    """

    exchange: Exchange
    body: Mapping[str, Any] | None = None
    findings: list[Finding] = field(default_factory=list)
    first_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    events: int = 0


class StreamReader:
    """Takes the bytes of a stream as they come.

    Args:
        api: whose rules it is held against.
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

    def take(self, at_s: float, data: bytes) -> None:
        """Takes the next bytes, which came so many seconds after the request.

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

    def end(self, at_s: float, *, whole: bool) -> None:
        """Ends the stream: `whole` unless the client went away, or the connection broke."""
        for event in self._parser.close() if whole else ():
            self._read(at_s, event)
        if whole:
            self._validator.close()

    @property
    def findings(self) -> list[Finding]:
        """What was found so far."""
        return self._validator.findings

    @property
    def body(self) -> Json | None:
        """What the stream adds up to so far; of Responses, what its terminal event carries.

        The validator holds the deltas against that.
        """
        return self._sum.terminal if isinstance(self._sum, ResponseAccumulator) else self._sum.body

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


async def hear(
    session: aiohttp.ClientSession, outgoing: Outgoing, api: Api, *, leaves_after: int | None = None
) -> StreamResult:
    """Sends a request once, and reads its answer.

    Args:
        session: of the connections.
        outgoing: what is sent.
        api: whose rules the answer is held against.
        leaves_after: after how many events the client goes away.
    """
    pending, ear = PendingExchange(outgoing.asked), StreamReader(api, outgoing.body)
    url, headers = outgoing.endpoint.url_for(outgoing.path), outgoing.arguments["headers"]
    try:
        async with session.post(url, json=outgoing.body, headers=headers) as answer:
            pending.answered(answer.status, answer.headers)
            async for data in answer.content.iter_any():
                pending.arrived(data)
                if pending.streamed:
                    ear.take(pending.elapsed_s, data)
                    pending.left = leaves_after is not None and len(ear.events) > leaves_after
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
    ear.end(pending.elapsed_s, whole=not (pending.broken or pending.left))
    return StreamResult(
        pending.read(ear.events), ear.body, ear.findings, ear.first_s, ear.gaps_s, len(ear.events)
    )
