"""Prepares an exchange for the page: the timed events of its stream, and the answer they add up to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_harness._protocol.conversation.exchange import accumulate
from vllm_harness._protocol.core.errors import ProtocolInputError
from vllm_harness._protocol.core.events import Json, as_json
from vllm_harness._protocol.core.sse import SSEEvent, SSEParser
from vllm_harness._protocol.responses.accumulate import ResponseAccumulator
from vllm_harness._runs.records import Arrival, ExchangeRecord, Piece
from vllm_harness.extras.html.bounds import Allowance

STREAMING = ("stream", "stream_options")


@dataclass(frozen=True)
class Timed:
    """An event of a stream.

    Attributes:
        after: the milliseconds from the request until the event was complete.
        event: the event.
    """

    after: float
    event: SSEEvent


def timed_events(stream: Sequence[Arrival]) -> Iterator[Timed]:
    """Yields the events of a stream, in the order that `event_index` in findings counts."""
    parser = SSEParser()
    after = 0.0
    try:
        for arrival in stream:
            after = round(arrival.after * 1000, 1)
            yield from (Timed(after, event) for event in parser.feed(arrival.text.encode("utf-8", "replace")))
        yield from (Timed(after, event) for event in parser.close())
    except ProtocolInputError as error:
        yield Timed(after, SSEEvent(str(error), "unreadable", truncated=True))


def added_up(events: Sequence[Json]) -> tuple[Json | None, Json | None]:
    """The answer that the events add up to, and the stream's final object if its API sends one."""
    if not events:
        return None, None
    try:
        accumulated = accumulate(events)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return None, None  # a server may send anything
    if isinstance(accumulated, ResponseAccumulator):
        return accumulated.response, accumulated.terminal
    return accumulated.body, None


def with_twins(exchanges: Sequence[ExchangeRecord]) -> list[ExchangeRecord]:
    """Pairs exchanges without a twin: a streamed and a non-streamed one with the same request."""
    by_request: dict[str, list[ExchangeRecord]] = {}
    for exchange in exchanges:
        by_request.setdefault(_request_key(exchange), []).append(exchange)
    return [
        exchange if exchange.twin else _twinned(exchange, by_request[_request_key(exchange)])
        for exchange in exchanges
    ]


def _request_key(exchange: ExchangeRecord) -> str:
    request = exchange.request
    if isinstance(request, dict):
        request = {key: value for key, value in request.items() if key not in STREAMING}
    return f"{exchange.path} {json.dumps(request, sort_keys=True)}"


def _twinned(exchange: ExchangeRecord, alike: Sequence[ExchangeRecord]) -> ExchangeRecord:
    others = [each for each in alike if bool(each.stream) != bool(exchange.stream)]
    same = [each for each in alike if bool(each.stream) == bool(exchange.stream)]
    place = same.index(exchange)
    if not isinstance(exchange.request, dict) or place >= len(others):
        return exchange
    return exchange.model_copy(update={"twin": others[place].id})


def shown(exchange: ExchangeRecord, allowance: Allowance) -> dict[str, Any]:
    """Converts an exchange to data for the page.

    Args:
        exchange: the recorded exchange.
        allowance: the characters that its case may still use.

    Returns:
        The exchange's fields; `stream` as `events` (`[ms, event, data]`, and `true` if the event is
        incomplete) with `accumulated` and `final`, or as `pieces` if it has no readable event.
    """
    events = list(timed_events(exchange.stream))
    values = [value for event in events if (value := as_json(event.event)) is not None]
    accumulated, final = added_up(values)
    fields: dict[str, Any] = {
        **exchange.model_dump(include={"id", "api", "method", "path", "at", "status", "seconds", "twin"}),
        "error": allowance.text(exchange.error),
        "headers": allowance.value(exchange.headers),
        "answer_headers": allowance.value(exchange.answer_headers),
        "request": allowance.value(exchange.request),
        "output": _pieces(exchange.output, allowance),
        "events": [_event(event, allowance) for event in events],
        "answer": allowance.value(exchange.answer),
        "accumulated": allowance.value(accumulated),
        "final": allowance.value(final),
        "prompt": _pieces(exchange.prompt, allowance),
    }
    fields["further"] = allowance.value(
        [generation.model_dump(exclude_defaults=True) for generation in exchange.further]
    )
    if exchange.stream and not events:
        fields["pieces"] = [
            [round(arrival.after * 1000, 1), allowance.text(arrival.text)] for arrival in exchange.stream
        ]
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def _event(timed: Timed, allowance: Allowance) -> list[Any]:
    event = timed.event
    return [timed.after, event.event or "", allowance.text(event.data), *([True] if event.truncated else [])]


def _pieces(pieces: Sequence[Piece], allowance: Allowance) -> list[Any]:
    return [[list(piece.ids), allowance.text(piece.text)] for piece in pieces]
