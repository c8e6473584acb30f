"""An exchange whose answer is still arriving."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vllm_harness._protocol.conversation.exchange import EVENT_STREAM, Chunk, Exchange
from vllm_harness._protocol.core.sse import SSEEvent, SSEParser

MAX_ANSWER = 256 * 2**20


@dataclass
class PendingExchange:
    """A request and the part of its answer that has arrived.

    Attributes:
        asked: the request.
        status: the HTTP status; 0 until the answer's status line and headers arrive.
        headers: the headers of the answer.
        chunks: the bytes that have arrived.
        seconds: the time in seconds until the answer ended or the client stopped reading.
        broken: why the answer ended too early; empty if it did not.
        left: whether the client disconnected before the end.
        parser: parses a stream to count its events; None if they are not counted.
        events: the number of events that have arrived.
    """

    asked: Exchange
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    seconds: float | None = None
    broken: str = ""
    left: bool = False
    parser: SSEParser | None = None
    events: int = 0
    _began: float = field(default_factory=time.perf_counter)
    _size: int = 0

    @property
    def elapsed_s(self) -> float:
        """The time in seconds since the request was sent."""
        return time.perf_counter() - self._began

    @property
    def streamed(self) -> bool:
        """Whether the answer is an event stream."""
        return self.headers.get("content-type", "").startswith(EVENT_STREAM)

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Records the answer's status and headers."""
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}

    def arrived(self, data: bytes) -> bytes:
        """Records bytes of the answer, up to `MAX_ANSWER` in total, and returns them."""
        self._size += len(data)
        if self.parser and self.streamed:
            self.events += len(self.parser.feed(data))
        if self._size <= MAX_ANSWER:
            self.chunks.append(Chunk(self.elapsed_s, data))
        else:
            self.broken = f"the answer is larger than {MAX_ANSWER} bytes"
        return data

    def ended(self, error: BaseException | None = None) -> None:
        """Records that the answer ended, and the error that ended it, if any."""
        if self.seconds is None:
            self.seconds = self.elapsed_s
        if error is not None and not isinstance(error, GeneratorExit):
            self.broken = f"{type(error).__name__}: {error}"

    @property
    def exchange(self) -> Exchange:
        """The exchange, with the part of the answer that has arrived."""
        whole = self.asked.answered(self.status, self.headers, self.chunks, self.broken)
        return replace(whole, seconds=self.seconds, left=self.left)

    def read(self, events: Sequence[SSEEvent]) -> Exchange:
        """The same as `exchange`, with events that the caller has already parsed."""
        whole = self.asked.answered(self.status, self.headers, (), self.broken)
        chunks = tuple(self.chunks)
        return replace(whole, events=events, chunks=chunks, seconds=self.seconds, left=self.left)
