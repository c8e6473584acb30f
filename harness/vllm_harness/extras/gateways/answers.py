"""An exchange with one side (server or gateway), and the request as the server received it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain, repeat
from typing import Any

from vllm_harness._exchange.answer import Answer, answers_of
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._protocol import Exchange, SSEEvent, SSEParser
from vllm_harness._protocol.conversation.exchange import accumulate
from vllm_harness._protocol.core.errors import ProtocolInputError
from vllm_harness._protocol.core.events import Api, Json

DONE = "[DONE]"
_ENDS: Mapping[str, frozenset[str]] = {
    "responses": frozenset(
        {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"}
    ),
    "messages": frozenset({"message_stop", "error"}),
}


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as the server received it.

    Attributes:
        api: the API over which it came.
        body: its JSON body; None if that was too large to be stored.
        states: the state of its script after each generation: `done`, `cut`, `running`, `refused`.
    """

    api: str
    body: Json | None = None
    states: tuple[str, ...] = ()


@dataclass(frozen=True)
class SideExchange(Exchange):
    """An exchange with one side: the server itself, or the gateway.

    Attributes:
        name: the API, the case, and the number of the request in the case.
        seen: the requests that the server received for it; None if that is unknown.
    """

    name: str = ""
    seen: tuple[ReceivedRequest, ...] | None = None

    @classmethod
    def of(cls, exchange: Exchange, **more: Any) -> SideExchange:
        """Makes a side's exchange from an exchange; `more` adds or replaces attributes."""
        return cls(**{**{field_.name: getattr(exchange, field_.name) for field_ in fields(Exchange)}, **more})

    @cached_property
    def summed(self) -> Mapping[str, Any]:
        """The body; for a stream, the body that its events add up to."""
        return accumulate(self.json_events).body if self.streamed else self.body or {}

    @property
    def answers(self) -> list[Answer]:
        """The meaning of the answer, for each of its choices."""
        return list(answers_of(self.api or "responses", self.summed))

    @property
    def frames(self) -> list[SSEEvent]:
        """The events of a stream."""
        return [event for event in self.events or () if isinstance(event, SSEEvent)]

    @property
    def times(self) -> list[float]:
        """The arrival time of each event, in seconds after the request."""
        parser = SSEParser()
        times = [chunk.at_s for chunk in self.chunks for _ in parser.feed(chunk.data)]
        return times + [self.chunks[-1].at_s for _ in parser.close()]

    @property
    def done_mark(self) -> bool:
        """Whether a stream contains `[DONE]`."""
        return any(frame.data.strip() == DONE for frame in self.frames)

    @property
    def ended(self) -> bool:
        """Whether a stream is complete."""
        if self.broken:
            return False
        if self.api and self.api in _ENDS:
            return any(event.get("type") in _ENDS[self.api] for event in self.json_events)
        return any(
            "error" in event or any(choice.get("finish_reason") for choice in _choices(event))
            for event in self.json_events
        )

    @property
    def error(self) -> Json | None:
        """The error object of an answer that is an error, or of a stream that ends with one."""
        errors = [value for value in (self.body, *self.json_events) if value and value.get("error")]
        if not errors:
            return None
        error = errors[-1]["error"]
        return error if isinstance(error, dict) else {"message": str(error)}


def answer_of(value: Mapping[str, Any]) -> SideExchange:
    """Makes an exchange from a rule's sample, which has `events` or a `body`, and other attributes.

    Raises:
        ProtocolInputError: the sample has neither.
    """
    api, events = value["api"], value.get("events")
    if events is None and "body" not in value:
        raise ProtocolInputError("an answer has events or a body")
    seen = value.get("seen")
    exchange = SideExchange(
        {"model": value.get("model", ""), "stream": bool(value.get("stream"))},
        path=API_PATHS[api],
        left=bool(value.get("left")),
        seen=None
        if seen is None
        else tuple(ReceivedRequest(**{**request, "states": tuple(request["states"])}) for request in seen),
    )
    pieces = [json.dumps(value.get("body"))] if events is None else [_frame(event, api) for event in events]
    times = chain(value.get("times", ()), repeat(0.0))
    chunks = ((at, piece.encode()) for at, piece in zip(times, pieces, strict=False))
    return exchange.answered(value["status"], value.get("headers", {}), chunks, value.get("broken", ""))


def _frame(event: Any, api: Api) -> str:
    if event == DONE:
        return f"data: {DONE}\n\n"
    named = "" if api == "chat" else f"event: {event.get('type')}\n"
    return f"{named}data: {json.dumps(event)}\n\n"


def _choices(event: Json) -> Sequence[Json]:
    choices = event.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
