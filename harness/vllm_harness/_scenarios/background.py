"""Polls background responses until they end, and reads their streams again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import httpx2

from vllm_harness._exchange.sending import Outgoing, send
from vllm_harness._protocol import Exchange
from vllm_harness._protocol.core.events import Json
from vllm_harness._scenarios.mismatches import OK, TurnMismatch

UNENDED = ("queued", "in_progress")
POLL_S = 0.05


def ended(client: httpx2.Client, creating: Outgoing, created: Exchange) -> Exchange:
    """Waits until a background response has ended; returns any other exchange unchanged."""
    limit_s, now = creating.seconds, created
    ends = time.monotonic() + limit_s
    while now.status == OK and (body := now.body) is not None and body.get("status") in UNENDED:
        if time.monotonic() > ends:
            return replace(now, broken=f"it was still {body['status']} after {limit_s:g} s")
        time.sleep(POLL_S)
        stored = _stored(client, creating, str(body.get("id")))
        now = replace(stored, request=created.request, method=created.method, path=created.path)
    return now


def replayed(client: httpx2.Client, creating: Outgoing, events: Sequence[Json]) -> list[TurnMismatch]:
    """Reads the stream of a response again from each of its events; returns the first difference."""
    response = next((event["response"]["id"] for event in events if "response" in event), None)
    if response is None:
        return []
    reads = [("the whole stream", "", events)]
    for number, event in enumerate(events[:-1]):
        after = event.get("sequence_number", number)
        reads.append((f"the stream after event {after}", f"&starting_after={after}", events[number + 1 :]))
    for what, query, expected in reads:
        again = _stored(client, creating, f"{response}?stream=true{query}")
        if mismatch := _mismatch(what, again, expected):
            return [mismatch]  # later ones have the same cause
    return []


def _stored(client: httpx2.Client, creating: Outgoing, place: str) -> Exchange:
    """Fetches a stored response, or its stream."""
    return send(client, replace(creating, path=f"{creating.path}/{place}", method="GET", body=None))


def _mismatch(what: str, again: Exchange, expected: Sequence[Json]) -> TurnMismatch | None:
    if again.status == OK and not again.broken and again.json_events == list(expected):
        return None
    actual = again.broken or _kinds(again.json_events, again.status)
    return TurnMismatch(what, f"read again: {_kinds(expected)}", actual)


def _kinds(events: Sequence[Json], status: int = OK) -> str:
    """The number of events, and the types of the first and the last."""
    if not events:
        return f"no event (HTTP {status})"
    return f"{len(events)} events, {events[0].get('type')} to {events[-1].get('type')}"
