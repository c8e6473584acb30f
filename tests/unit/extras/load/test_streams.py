"""A stream is timed and validated while it arrives, however its bytes are split."""

from __future__ import annotations

import pytest

from vllm_harness._exchange.answer import answer_of
from vllm_harness._protocol import StreamValidator, parse_sse, validate_stream
from vllm_harness._protocol.core.events import Api
from vllm_harness._protocol.core.examples import as_sse
from vllm_harness._protocol.samples import SAMPLES
from vllm_harness.extras.load.streams import StreamReader

OF_API: dict[Api, str] = {"responses": "sse", "chat": "chat_sse", "messages": "messages_text"}
WORDS = {"responses": "Hello, world", "chat": "Hello, world"}


def wire(api: Api) -> bytes:
    text = as_sse(SAMPLES[OF_API[api]].build())
    return text.encode() if "[DONE]" in text or api != "chat" else f"{text}data: [DONE]\n\n".encode()


def read(api: Api, data: bytes, size: int) -> StreamReader:
    """Reads the data in pieces of the given size, one per second."""
    reader = StreamReader(api, {"stream": True})
    for number, start in enumerate(range(0, len(data), size)):
        reader.feed(float(number), data[start : start + size])
    reader.close(1000.0, whole=True)
    return reader


@pytest.mark.parametrize("size", [1, 7, 100, 100_000])
@pytest.mark.parametrize("api", OF_API)
def test_pieces_of_any_size(api: Api, size: int) -> None:
    data = wire(api)
    whole, pieces = read(api, data, len(data)), read(api, data, size)
    assert whole.findings == [] == pieces.findings
    assert whole.body is not None
    assert whole.body == pieces.body
    assert [*whole.events] == [*pieces.events] == list(parse_sse([data]))
    answer = answer_of(api, whole.body)
    assert answer.status == "completed"
    assert answer.text == WORDS.get(api, answer.text) != ""


@pytest.mark.parametrize("api", OF_API)
def test_same_findings_as_for_a_recorded_stream(api: Api) -> None:
    """Leaves out one event of the stream at a time."""
    events = wire(api).decode().split("\n\n")[:-1]
    with_findings = 0
    for number in range(len(events)):
        data = "".join(f"{each}\n\n" for i, each in enumerate(events) if i != number).encode()
        reader = read(api, data, 100)
        assert reader.findings == validate_stream(parse_sse([data]), api=api, request={"stream": True})
        with_findings += bool(reader.findings)
    assert with_findings > len(events) // 2


def test_times_of_arrivals() -> None:
    events = [f"{each}\n\n".encode() for each in wire("chat").decode().split("\n\n")[:-1]]
    reader = StreamReader("chat", {"stream": True})
    reader.feed(0.5, events[0])  # contains only the role
    reader.feed(0.75, events[1][:10])
    reader.feed(1.0, events[1][10:])
    reader.feed(3.0, b"".join(events[2:]))
    reader.close(4.0, whole=True)
    assert reader.first_s == 1.0
    assert reader.gaps_s == [0.5, 2.0]


def test_a_stream_that_the_client_left_may_lack_its_end() -> None:
    events = [f"{each}\n\n".encode() for each in wire("responses").decode().split("\n\n")[:-1]]
    left, broken_off = (
        StreamReader("responses", {"stream": True}),
        StreamReader("responses", {"stream": True}),
    )
    for reader, whole in ((left, False), (broken_off, True)):
        reader.feed(1.0, b"".join(events[:3]) + events[3][:5])
        reader.close(2.0, whole=whole)
    assert left.findings == []
    assert {finding.code for finding in broken_off.findings} == {"RS105"}
    assert left.body is None


def test_reading_an_event_gives_its_value() -> None:
    validator = StreamValidator(api="chat")
    values = [validator.read(event) for event in parse_sse([wire("chat"), b"data: {oops\n\n"])]
    assert values[:-2] == SAMPLES["chat_sse"].build()
    assert values[-2:] == [None, None]
    assert [finding.code for finding in validator.findings] == ["SE108", "SE103"]
