"""A parser of server-sent events that records framing faults on each event.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html (parsing an event stream).
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import NamedTuple

from vllm_harness._protocol.core.errors import ProtocolInputError

MAX_EVENT_BYTES = 32 * 1024 * 1024


class SSEEvent(NamedTuple):
    """One server-sent event.

    Attributes:
        data: the data lines, joined by newlines.
        event: the `event:` field; None if the server sent none.
        id: the `id:` field; None if the server sent none.
        line: the line of the stream on which the event begins, counted from 1.
        bad_utf8: whether bytes were not UTF-8; they are replaced by U+FFFD.
        truncated: whether the stream ended before the blank line that closes the event.
    """

    data: str
    event: str | None = None
    id: str | None = None
    line: int = 0
    bad_utf8: bool = False
    truncated: bool = False


class SSEParser:
    """An incremental parser, which returns the same events however the bytes are split into chunks.

    Pass the bytes to `feed` as they arrive, and call `close` at the end. At most one event is kept in memory.

    Args:
        max_event_bytes: the maximum size of an event, in bytes.

    Raises:
        ProtocolInputError: an event is larger than `max_event_bytes` (from `feed`).
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._pending: list[bytes] = []
        self._size = 0
        self._line = 1
        self._held_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[SSEEvent]:
        """Parses the next bytes; returns the events that they complete."""
        if self._held_cr or b"\r" in chunk:
            chunk = self._plain_line_ends(chunk)
        if not chunk:
            return []
        pending = self._pending
        if b"\n\n" not in chunk and not (pending and chunk[0] == 10 and pending[-1][-1] == 10):
            self._keep(chunk)
            return []
        block, _, rest = b"".join((*pending, chunk)).rpartition(b"\n\n")
        self._check_size(len(block) - len(chunk))
        self._pending, self._size = [], 0
        if rest:
            self._keep(rest)
        return self._events(block)

    def close(self) -> list[SSEEvent]:
        """Ends the stream; returns its last event if that is truncated."""
        rest = b"".join(self._pending)
        self._pending, self._size, self._held_cr = [], 0, False
        return [event._replace(truncated=True) for event in self._events(rest)]

    def _plain_line_ends(self, chunk: bytes) -> bytes:
        if self._held_cr:
            chunk = b"\r" + chunk
        self._held_cr = chunk.endswith(b"\r")
        if self._held_cr:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._check_size(self._size)
        self._pending.append(chunk)

    def _check_size(self, size: int) -> None:
        if size > self._max:
            self._pending = []
            raise ProtocolInputError(
                f"an event is larger than {self._max} bytes", line=self._line, hint="raise max_event_bytes"
            )

    def _events(self, block: bytes) -> list[SSEEvent]:
        if self._at_start and block:
            self._at_start = False
            block = block.removeprefix(b"\xef\xbb\xbf")
        try:
            pieces = [(text, False) for text in block.decode().split("\n\n")]
        except UnicodeDecodeError:
            pieces = [_decode(piece) for piece in block.split(b"\n\n")]
        events = []
        for text, bad_utf8 in pieces:
            event = _parse(text, self._line, bad_utf8)
            if event is not None:
                events.append(event)
            self._line += text.count("\n") + 2
        return events


def parse_sse(chunks: Iterable[bytes], *, max_event_bytes: int = MAX_EVENT_BYTES) -> Iterator[SSEEvent]:
    """Yields the events of a byte stream, which may be split into chunks anywhere.

    Raises:
        ProtocolInputError: an event is larger than `max_event_bytes`.
    """
    parser = SSEParser(max_event_bytes)
    for chunk in chunks:
        yield from parser.feed(chunk)
    yield from parser.close()


async def parse_sse_async(
    chunks: AsyncIterable[bytes], *, max_event_bytes: int = MAX_EVENT_BYTES
) -> AsyncIterator[SSEEvent]:
    """The counterpart of `parse_sse` for an asynchronous byte stream."""
    parser = SSEParser(max_event_bytes)
    async for chunk in chunks:
        for event in parser.feed(chunk):
            yield event
    for event in parser.close():
        yield event


def _decode(data: bytes) -> tuple[str, bool]:
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), True


def _parse(block: str, line: int, bad_utf8: bool) -> SSEEvent | None:
    if block.startswith("event: "):
        name, separator, data = block[7:].partition("\ndata: ")
        if separator and "\n" not in data and "\n" not in name:
            return SSEEvent(data, name, None, line, bad_utf8)
    elif block.startswith("data: ") and "\n" not in block:
        return SSEEvent(block[6:], None, None, line, bad_utf8)
    return _parse_fields(block, line, bad_utf8)


def _parse_fields(block: str, line: int, bad_utf8: bool) -> SSEEvent | None:
    data: list[str] = []
    name = identifier = None
    first = 0
    for number, row in enumerate(block.split("\n")):
        field, _, value = row.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            identifier = value
        if not first and row and not row.startswith(":"):
            first = line + number
    return SSEEvent("\n".join(data), name, identifier, first or line, bad_utf8) if data else None
