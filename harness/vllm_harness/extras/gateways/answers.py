"""An answer to one request as it came, and what the server behind saw of that request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vllm_harness.protocol.chat.accumulate import ChatAccumulator
from vllm_harness.protocol.conversation.compare import accumulate
from vllm_harness.protocol.core.errors import ProtocolInputError
from vllm_harness.protocol.core.events import Api, Json, as_json, decode
from vllm_harness.protocol.core.sse import SSEEvent, SSEParser
from vllm_harness.protocol.messages.accumulate import MessageAccumulator
from vllm_harness.protocol.responses.accumulate import ResponseAccumulator

EVENT_STREAM = "text/event-stream"
DONE = "[DONE]"
_ENDS: Mapping[str, frozenset[str]] = {
    "responses": frozenset(
        {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"}
    ),
    "messages": frozenset({"message_stop", "error"}),
}


@dataclass(frozen=True)
class Seen:
    """A request as the server got it.

    Attributes:
        api: the API that it came over.
        body: JSON; None where it was too large to be kept.
        states: what became of its script in each generation: `done`, `cut`, `running`, `refused`.
    """

    api: str
    body: Json | None = None
    states: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came for one request.

    Attributes:
        api: of the request.
        streamed: whether the request asked for a stream.
        status: of HTTP; 0 where no answer came.
        headers: names in lower case.
        body: JSON; None for a stream, and for what is no JSON object.
        frames: the events of a stream.
        times: seconds after the request at which each of them came.
        broken: how it ended, where it did not end well.
        model: the name of the model that was asked for.
        seen: the requests that the server got for it; None where nobody can say.
        left: whether the client left before the end.
    """

    api: Api
    streamed: bool
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Json | None = None
    frames: tuple[SSEEvent, ...] = ()
    times: tuple[float, ...] = ()
    broken: str = ""
    model: str = ""
    seen: tuple[Seen, ...] | None = None
    left: bool = False

    @cached_property
    def events(self) -> tuple[Json, ...]:
        """The events that are JSON objects."""
        return tuple(value for frame in self.frames if (value := as_json(frame)) is not None)

    @cached_property
    def whole(self) -> Json:
        """The body, or what the stream adds up to."""
        if not self.is_stream:
            return self.body or {}
        match accumulate(self.events):
            case ChatAccumulator() as chat:
                return chat.completion
            case MessageAccumulator() as message:
                return message.message
            case ResponseAccumulator() as response:
                return response.response

    @property
    def is_stream(self) -> bool:
        """Whether server-sent events came."""
        return self.headers.get("content-type", "").startswith(EVENT_STREAM)

    @property
    def done_mark(self) -> bool:
        """Whether a stream has `[DONE]`."""
        return any(frame.data.strip() == DONE for frame in self.frames)

    @property
    def ended(self) -> bool:
        """Whether a stream came to its end."""
        if self.broken:
            return False
        if self.api in _ENDS:
            return any(event.get("type") in _ENDS[self.api] for event in self.events)
        return any(
            "error" in event or any(choice.get("finish_reason") for choice in _choices(event))
            for event in self.events
        )

    @property
    def error(self) -> Json | None:
        """The error object of an answer that is an error, or of a stream that ends with one."""
        found = [value for value in (self.body, *self.events) if value and value.get("error")]
        if not found:
            return None
        error = found[-1]["error"]
        return error if isinstance(error, dict) else {"message": str(error)}


def read_answer(
    api: Api,
    streamed: bool,
    status: int,
    headers: Mapping[str, str],
    chunks: Iterable[tuple[float, bytes]],
    **more: Any,
) -> Answer:
    """An answer from the bytes that came.

    Args:
        chunks: seconds after the request, and bytes, as they came.
        more: further attributes of `Answer`.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    if not lower.get("content-type", "").startswith(EVENT_STREAM):
        data = b"".join(chunk for _, chunk in chunks)
        return Answer(api, streamed, status, lower, _json_object(data), **more)
    frames, times = _frames(chunks)
    return Answer(api, streamed, status, lower, None, frames, times, **more)


def _frames(chunks: Iterable[tuple[float, bytes]]) -> tuple[tuple[SSEEvent, ...], tuple[float, ...]]:
    parser = SSEParser()
    frames: list[SSEEvent] = []
    times: list[float] = []
    at = 0.0
    for at, chunk in chunks:
        found = parser.feed(chunk)
        frames += found
        times += [at] * len(found)
    last = parser.close()
    return (*frames, *last), (*times, *[at] * len(last))


def answer_of(value: Mapping[str, Any]) -> Answer:
    """An answer as a sample of a rule has it: `events` or a `body`, and the attributes of `Answer`.

    Raises:
        ProtocolInputError: it has neither.
    """
    api, events = value["api"], value.get("events")
    if events is None and "body" not in value:
        raise ProtocolInputError("an answer has events or a body")
    seen = value.get("seen")
    return Answer(
        api,
        bool(value.get("stream")),
        value["status"],
        value.get("headers", {}),
        value.get("body"),
        tuple(_frame(event, api) for event in events or ()),
        tuple(value.get("times", ())),
        value.get("broken", ""),
        value.get("model", ""),
        None if seen is None else tuple(Seen(**{**each, "states": tuple(each["states"])}) for each in seen),
        bool(value.get("left")),
    )


def _frame(event: Any, api: Api) -> SSEEvent:
    if event == DONE:
        return SSEEvent(DONE)
    return SSEEvent(json.dumps(event), None if api == "chat" else event.get("type"))


def _json_object(data: bytes) -> Json | None:
    try:
        value = decode(data.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _choices(event: Json) -> Sequence[Json]:
    choices = event.get("choices")
    return [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []
