"""A stream is timed and validated while it comes, however its bytes are cut."""

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


def heard(api: Api, data: bytes, size: int) -> StreamReader:
    """An ear that got the data in pieces of a size, one each second."""
    ear = StreamReader(api, {"stream": True})
    for number, start in enumerate(range(0, len(data), size)):
        ear.take(float(number), data[start : start + size])
    ear.end(1000.0, whole=True)
    return ear


@pytest.mark.parametrize("size", [1, 7, 100, 100_000])
@pytest.mark.parametrize("api", OF_API)
def test_any_cut_gives_the_same(api: Api, size: int) -> None:
    data = wire(api)
    whole, cut = heard(api, data, len(data)), heard(api, data, size)
    assert whole.findings == [] == cut.findings
    assert whole.body is not None
    assert whole.body == cut.body
    assert [*whole.events] == [*cut.events] == list(parse_sse([data]))
    answer = answer_of(api, whole.body)
    assert answer.status == "completed"
    assert answer.text == WORDS.get(api, answer.text) != ""


@pytest.mark.parametrize("api", OF_API)
def test_the_same_rules_as_of_a_recorded_stream(api: Api) -> None:
    """Each event left out in turn."""
    events = wire(api).decode().split("\n\n")[:-1]
    found = 0
    for number in range(len(events)):
        data = "".join(f"{each}\n\n" for i, each in enumerate(events) if i != number).encode()
        ear = heard(api, data, 100)
        assert ear.findings == validate_stream(parse_sse([data]), api=api, request={"stream": True})
        found += bool(ear.findings)
    assert found > len(events) // 2


def test_times_are_those_of_arrivals() -> None:
    events = [f"{each}\n\n".encode() for each in wire("chat").decode().split("\n\n")[:-1]]
    ear = StreamReader("chat", {"stream": True})
    ear.take(0.5, events[0])  # the role, no words
    ear.take(0.75, events[1][:10])
    ear.take(1.0, events[1][10:])
    ear.take(3.0, b"".join(events[2:]))
    ear.end(4.0, whole=True)
    assert ear.first_s == 1.0
    assert ear.gaps_s == [0.5, 2.0]


def test_a_stream_that_was_left_is_not_held_to_its_end() -> None:
    events = [f"{each}\n\n".encode() for each in wire("responses").decode().split("\n\n")[:-1]]
    left, cut = StreamReader("responses", {"stream": True}), StreamReader("responses", {"stream": True})
    for ear, whole in ((left, False), (cut, True)):
        ear.take(1.0, b"".join(events[:3]) + events[3][:5])
        ear.end(2.0, whole=whole)
    assert left.findings == []
    assert {finding.code for finding in cut.findings} == {"RS105"}
    assert left.body is None


def test_reading_an_event_gives_its_value() -> None:
    validator = StreamValidator(api="chat")
    values = [validator.read(event) for event in parse_sse([wire("chat"), b"data: {oops\n\n"])]
    assert values[:-2] == SAMPLES["chat_sse"].build()
    assert values[-2:] == [None, None]
    assert [finding.code for finding in validator.findings] == ["SE108", "SE103"]
