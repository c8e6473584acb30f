"""Answers that are made in the background: asked for until they have ended, and their streams read again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import httpx

from vllm_harness.protocol.core.events import Json
from vllm_harness.scenarios.judging import OK, Mismatch
from vllm_harness.scenarios.sending import Reply, send

UNENDED = ("queued", "in_progress")
POLL_S = 0.05


@dataclass(frozen=True)
class Stored:
    """Where stored responses are.

    Attributes:
        client: that asks for them.
        url: of all of them.
        headers: of a request.
        limit_s: seconds in which an answer must have ended.
    """

    client: httpx.Client
    url: str
    headers: Mapping[str, str]
    limit_s: float

    def get(self, response: str, query: str = "") -> Reply:
        """A response as it is now, or its stream."""
        url = f"{self.url}/{response}{query}"
        return send(self.client, url, None, self.headers, method="GET", limit_s=self.limit_s)


def ended(stored: Stored, created: Reply) -> Reply:
    """The response that was created in the background, once it has ended; anything else as it is."""
    ends, reply = time.monotonic() + stored.limit_s, created
    while reply.status == OK and (body := reply.body) is not None and body.get("status") in UNENDED:
        if time.monotonic() > ends:
            return replace(reply, broken=f"it was still {body['status']} after {stored.limit_s:g} s")
        time.sleep(POLL_S)
        reply = stored.get(str(body.get("id")))
    return reply


def replayed(stored: Stored, events: Sequence[Json]) -> list[Mismatch]:
    """Where the stream of a response, read again after each of its events, is first not the rest of it."""
    response = next((event["response"]["id"] for event in events if "response" in event), None)
    if response is None:
        return []
    reads = [("the whole stream", "", events)]
    for number, event in enumerate(events[:-1]):
        after = event.get("sequence_number", number)
        reads.append((f"the stream after event {after}", f"&starting_after={after}", events[number + 1 :]))
    for what, query, expected in reads:
        if found := _compared(what, stored.get(response, f"?stream=true{query}"), expected):
            return [found]  # what follows has the same cause
    return []


def _compared(what: str, again: Reply, expected: Sequence[Json]) -> Mismatch | None:
    if again.status == OK and not again.broken and again.events == list(expected):
        return None
    actual = again.broken or _kinds(again.events, again.status)
    return Mismatch(what, f"read again: {_kinds(expected)}", actual)


def _kinds(events: Sequence[Json], status: int = OK) -> str:
    """The number of events, and of what types the first and the last are."""
    if not events:
        return f"no event (HTTP {status})"
    return f"{len(events)} events, {events[0].get('type')} to {events[-1].get('type')}"
