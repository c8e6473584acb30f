"""One request and its answer, and the accumulation of its stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

from vllm_harness._protocol.core.errors import ProtocolInputError
from vllm_harness._protocol.core.events import AnyEvent, Api, Json, as_json, decode
from vllm_harness._protocol.core.sse import parse_sse

if TYPE_CHECKING:
    from vllm_harness._protocol.chat.accumulate import ChatAccumulator
    from vllm_harness._protocol.messages.accumulate import MessageAccumulator
    from vllm_harness._protocol.responses.accumulate import ResponseAccumulator

EVENT_STREAM = "text/event-stream"
_ENDS: dict[str, Api] = {"/responses": "responses", "/chat/completions": "chat", "/messages": "messages"}


class Chunk(NamedTuple):
    """A chunk of an answer: its arrival, in seconds after the request, and its bytes."""

    at_s: float
    data: bytes


@dataclass(frozen=True)
class Exchange:
    """A request and its answer.

    Attributes:
        request: the body of the request; empty if there was none or it is unknown.
        body: the answer, if it is a single JSON object.
        events: the answer, if it was streamed.
        method: the HTTP method.
        path: the path of the URL, with its query.
        status: the HTTP status of the answer; 0 if there was none.
        headers: the headers of the answer, by lowercase name.
        chunks: the bytes of the answer, if known.
        seconds: the seconds until the end of the answer, if known.
        broken: why the answer ended too early; empty if it did not.
        left: whether the client disconnected before the end.
    """

    request: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    events: Sequence[AnyEvent] | None = None
    method: str = "POST"
    path: str = "/v1/responses"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[Chunk, ...] = ()
    seconds: float | None = None
    broken: str = ""
    left: bool = False

    def answered(
        self, status: int, headers: Mapping[str, str], chunks: Iterable[tuple[float, bytes]], broken: str = ""
    ) -> Self:
        """Returns the same request with this answer, which is broken if its stream cannot be parsed."""
        received = tuple(Chunk(*chunk) for chunk in chunks)
        lower = {name.lower(): value for name, value in headers.items()}
        streamed = lower.get("content-type", "").startswith(EVENT_STREAM)
        events: list[AnyEvent] = []
        try:
            events += parse_sse(chunk.data for chunk in received if streamed)
        except ProtocolInputError as error:
            broken = broken or f"{type(error).__name__}: {error}"
        return replace(
            self,
            body=None if streamed else json_object(b"".join(chunk.data for chunk in received)),
            events=events if streamed else None,
            status=status,
            headers=lower,
            chunks=received,
            seconds=received[-1].at_s if received else None,
            broken=broken,
        )

    @property
    def api(self) -> Api | None:
        """The API to which the path and the method belong; None if they belong to no API."""
        path = urlsplit(self.path).path.rstrip("/")
        return next((api for end, api in _ENDS.items() if self.method == "POST" and path.endswith(end)), None)

    @property
    def streamed(self) -> bool:
        """Whether the answer was streamed."""
        return self.events is not None

    @property
    def content(self) -> bytes:
        """The bytes of the whole answer."""
        return b"".join(chunk.data for chunk in self.chunks)

    @property
    def ok(self) -> bool:
        """Whether the answer is complete and not an error."""
        return 0 < self.status < 400 and not self.broken

    @cached_property
    def json_events(self) -> list[Json]:
        """The events of a stream that are JSON objects."""
        return [value for event in self.events or () if (value := as_json(event)) is not None]

    @cached_property
    def whole(self) -> Mapping[str, Any] | None:
        """The body; for a stream, the response of its terminal event, or the accumulated answer."""
        if self.events is None:
            return self.body
        return accumulate(self.json_events).whole


def accumulate(values: Iterable[Json]) -> ChatAccumulator | MessageAccumulator | ResponseAccumulator:
    """Accumulates the events of a stream of any API."""
    values = list(values)
    accumulated = _accumulator_for(values)
    for value in values:
        accumulated.feed(value)
    return accumulated


def _accumulator_for(values: list[Json]) -> ChatAccumulator | MessageAccumulator | ResponseAccumulator:
    """Makes the accumulator of the API to which events belong; imports only that API."""
    if any("choices" in value for value in values):
        from vllm_harness._protocol.chat.accumulate import ChatAccumulator

        return ChatAccumulator()
    from vllm_harness._protocol.messages.schema import EVENTS

    if any(value.get("type") in EVENTS for value in values):
        from vllm_harness._protocol.messages.accumulate import MessageAccumulator

        return MessageAccumulator()
    from vllm_harness._protocol.responses.accumulate import ResponseAccumulator

    return ResponseAccumulator()


def json_object(content: bytes) -> Json | None:
    """Parses a body as a JSON object; None if it is not one."""
    try:
        value = decode(content.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
