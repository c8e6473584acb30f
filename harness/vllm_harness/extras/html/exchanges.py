"""An exchange as the page has it: the events of its stream with their times, and what they add up to."""

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
        after: milliseconds from the request until it was whole.
        event: what came.
    """

    after: float
    event: SSEEvent


def timed_events(stream: Sequence[Arrival]) -> list[Timed]:
    """The events of a stream, counted as the findings' `event_index` counts them."""
    return list(_timed(stream))


def _timed(stream: Sequence[Arrival]) -> Iterator[Timed]:
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
    """What events add up to, and the object that the stream itself ends with, where its API has one."""
    if not events:
        return None, None
    try:
        accumulated = accumulate(events)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return None, None  # what a server sends may be anything
    if isinstance(accumulated, ResponseAccumulator):
        return accumulated.response, accumulated.terminal
    return accumulated.body, None


def with_twins(exchanges: Sequence[ExchangeRecord]) -> list[ExchangeRecord]:
    """The exchanges; where one has no twin, the one that asks the same the other way becomes it."""
    asked: dict[str, list[ExchangeRecord]] = {}
    for each in exchanges:
        asked.setdefault(_question(each), []).append(each)
    return [each if each.twin else _twinned(each, asked[_question(each)]) for each in exchanges]


def _question(exchange: ExchangeRecord) -> str:
    request = exchange.request
    if isinstance(request, dict):
        request = {key: value for key, value in request.items() if key not in STREAMING}
    return f"{exchange.path} {json.dumps(request, sort_keys=True)}"


def _twinned(exchange: ExchangeRecord, alike: Sequence[ExchangeRecord]) -> ExchangeRecord:
    other_way = [each for each in alike if bool(each.stream) != bool(exchange.stream)]
    own = [each for each in alike if bool(each.stream) == bool(exchange.stream)]
    place = own.index(exchange)
    if not isinstance(exchange.request, dict) or place >= len(other_way):
        return exchange
    return exchange.model_copy(update={"twin": other_way[place].id})


def shown(exchange: ExchangeRecord, room: Allowance) -> dict[str, Any]:
    """The exchange for the page.

    Args:
        exchange: as it was recorded.
        room: what is left to its case.

    Returns:
        Its fields; `stream` as `events` (`[ms, event, data]`, and `true` where it was cut) with `accumulated`
        and `final`, or as it came (`pieces`) where no event could be read of it.
    """
    events = timed_events(exchange.stream)
    values = [value for each in events if (value := as_json(each.event)) is not None]
    accumulated, final = added_up(values)
    fields: dict[str, Any] = {
        **exchange.model_dump(include={"id", "api", "method", "path", "at", "status", "seconds", "twin"}),
        "error": room.text(exchange.error),
        "headers": room.value(exchange.headers),
        "answer_headers": room.value(exchange.answer_headers),
        "request": room.value(exchange.request),
        "output": _pieces(exchange.output, room),
        "events": [_event(each, room) for each in events],
        "answer": room.value(exchange.answer),
        "accumulated": room.value(accumulated),
        "final": room.value(final),
        "prompt": _pieces(exchange.prompt, room),
    }
    fields["further"] = room.value([each.model_dump(exclude_defaults=True) for each in exchange.further])
    if exchange.stream and not events:
        fields["pieces"] = [[round(each.after * 1000, 1), room.text(each.text)] for each in exchange.stream]
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def _event(timed: Timed, room: Allowance) -> list[Any]:
    event = timed.event
    return [timed.after, event.event or "", room.text(event.data), *([True] if event.truncated else [])]


def _pieces(pieces: Sequence[Piece], room: Allowance) -> list[Any]:
    return [[list(each.ids), room.text(each.text)] for each in pieces]
