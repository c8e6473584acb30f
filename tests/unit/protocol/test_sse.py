"""The parser of server-sent events."""

from __future__ import annotations

import pytest

from vllm_harness._protocol import SSEEvent, SSEParser, parse_sse, parse_sse_async


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        (b"data: a\n\n", [SSEEvent("a", line=1)]),
        (b"event: x\ndata: a\n\n", [SSEEvent("a", "x", line=1)]),
        (b"data: a\nevent: x\n\n", [SSEEvent("a", "x", line=1)]),
        (b"data:a\ndata: b\n\n", [SSEEvent("a\nb", line=1)]),
        (b": hello\n\ndata: a\n\n", [SSEEvent("a", line=3)]),
        (b": hello\ndata: a\n\n", [SSEEvent("a", line=2)]),
        (b"\n\n\ndata: a\n\n", [SSEEvent("a", line=4)]),
        (b"event: ping\n\n", []),
        (b"id: 7\nretry: 5\ndata: a\n\n", [SSEEvent("a", id="7", line=1)]),
        (b"data: a\r\n\r\ndata: b\r\r", [SSEEvent("a", line=1), SSEEvent("b", line=3, truncated=True)]),
        (b"data: a\n\ndata: b\n", [SSEEvent("a", line=1), SSEEvent("b", line=3, truncated=True)]),
        (b"\xef\xbb\xbfdata: a\n\n", [SSEEvent("a", line=1)]),
        ("data: Zürich \u2028 x\n\n".encode(), [SSEEvent("Zürich \u2028 x", line=1)]),
        (b"data: \xff\n\ndata: b\n\n", [SSEEvent("\ufffd", line=1, bad_utf8=True), SSEEvent("b", line=3)]),
    ],
)
def test_events_of_bytes(wire: bytes, events: list[SSEEvent]) -> None:
    assert list(parse_sse([wire])) == events
    assert list(parse_sse([wire[at : at + 1] for at in range(len(wire))])) == events


def test_character_split_across_chunks_is_whole() -> None:
    parser = SSEParser()
    assert parser.feed(b"data: \xc3") == []
    assert parser.feed(b"\xbc\n\n") == [SSEEvent("ü", line=1)]
    assert parser.close() == []


async def test_asynchronous_counterpart() -> None:
    async def chunks():  # type: ignore[no-untyped-def]
        yield b"data: a\n"
        yield b"\ndata: b\n\n"

    assert [event.data async for event in parse_sse_async(chunks())] == ["a", "b"]
