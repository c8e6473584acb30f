"""An exchange whose answer is arriving."""

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
        status: the HTTP status; 0 until the head of the answer arrives.
        headers: the headers of the answer.
        chunks: the bytes that have arrived.
        seconds: the seconds until the answer ended or was given up.
        broken: why the answer ended too early; empty if it did not.
        left: whether the client disconnected before the end.
        parser: counts the events of a stream; None if they are not counted.
        events: the number of events so far.
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
        """Seconds since the request was sent."""
        return time.perf_counter() - self._began

    @property
    def streamed(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.headers.get("content-type", "").startswith(EVENT_STREAM)

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Records the head of the answer."""
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}

    def arrived(self, data: bytes) -> bytes:
        """Records bytes of the answer, up to a limit, and returns them."""
        self._size += len(data)
        if self.parser and self.streamed:
            self.events += len(self.parser.feed(data))
        if self._size <= MAX_ANSWER:
            self.chunks.append(Chunk(self.elapsed_s, data))
        else:
            self.broken = f"the answer is larger than {MAX_ANSWER} bytes"
        return data

    def ended(self, error: BaseException | None = None) -> None:
        """Records the end of the answer."""
        if self.seconds is None:
            self.seconds = self.elapsed_s
        if error is not None and not isinstance(error, GeneratorExit):
            self.broken = f"{type(error).__name__}: {error}"

    @property
    def exchange(self) -> Exchange:
        """The exchange so far."""
        whole = self.asked.answered(self.status, self.headers, self.chunks, self.broken)
        return replace(whole, seconds=self.seconds, left=self.left)

    def read(self, events: Sequence[SSEEvent]) -> Exchange:
        """The exchange so far, with events that the caller has already parsed."""
        whole = self.asked.answered(self.status, self.headers, (), self.broken)
        chunks = tuple(self.chunks)
        return replace(whole, events=events, chunks=chunks, seconds=self.seconds, left=self.left)
