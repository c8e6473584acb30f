"""Untrusted input raises only the documented error, and memory use stays bounded."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from vllm_harness._exchange.answer import answers_of
from vllm_harness._protocol import (
    ChatAccumulator,
    Exchange,
    MessageAccumulator,
    ProtocolInputError,
    ResponseAccumulator,
    StreamValidator,
    compare_stream,
    parse_sse,
    validate_body,
    validate_conversation,
    validate_stream,
)
from vllm_harness._protocol.core.events import Api
from vllm_harness._protocol.core.examples import as_sse
from vllm_harness._protocol.samples import SAMPLES

COUNT = int(os.environ.get("VLLM_HARNESS_FUZZ", "1500"))
_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    7,
    10**30,
    1.5,
    "",
    "x",
    "\ud800",
    "é" * 9,
    [],
    {},
    [[]],
    [{}],
    {"type": 1},
)
_TOKENS = (
    b"data: ",
    b"event: ",
    b"id: ",
    b": ",
    b"\n",
    b"\n\n",
    b"\r\n",
    b"\r",
    b"{",
    b"}",
    b'"',
    b"[DONE]",
    b"NaN",
    b"\xff",
    b"\xef\xbb\xbf",
)
_STREAMS = [sample.build() for sample in SAMPLES.values() if sample.kind in ("responses", "chat", "messages")]
_CONVERSATIONS = [sample.build() for sample in SAMPLES.values() if sample.kind == "conversation"]
_WIRES = [as_sse(events).encode() for events in _STREAMS]


def _noise(rng: random.Random) -> bytes:
    wire = bytearray(rng.choice(_WIRES))
    match rng.randrange(4):
        case 0:
            return rng.randbytes(rng.randrange(300))
        case 1:
            return b"".join(rng.choice(_TOKENS) for _ in range(rng.randrange(60)))
        case 2:
            for _ in range(rng.randrange(1, 12)):
                wire[rng.randrange(len(wire))] = rng.randrange(256)
        case 3:
            for _ in range(rng.randrange(1, 5)):
                at = rng.randrange(len(wire))
                wire[at : at + rng.randrange(200)] = rng.choice(_TOKENS) * rng.randrange(3)
    return bytes(wire)


def _scrambled(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """A copy of a JSON value in which a few leaves and branches are replaced or removed."""
    if rng.random() < 0.04:
        return rng.choice(_VALUES)
    if isinstance(value, dict):
        return {key: _scrambled(rng, inner, depth + 1) for key, inner in value.items() if rng.random() > 0.02}
    if isinstance(value, list):
        return [_scrambled(rng, inner, depth + 1) for inner in value]
    return value


def _scrambled_exchange(rng: random.Random, value: dict[str, Any]) -> Exchange:
    sides = {key: _scrambled(rng, value[key]) for key in ("request", "body", "events") if key in value}
    shaped = {key: side for key, side in sides.items() if isinstance(side, type(value[key]))}
    if "events" in shaped:
        shaped["events"] = [event for event in shaped["events"] if isinstance(event, dict)]
    return Exchange(method=value["method"], path=value["path"], **shaped)


@pytest.mark.timeout(3600)
def test_random_bytes_raise_only_input_errors() -> None:
    rng = random.Random(20260101)
    for _ in range(COUNT):
        wire = _noise(rng)
        try:
            validate_stream(parse_sse([wire], max_event_bytes=4096))
        except ProtocolInputError:
            continue


@pytest.mark.timeout(3600)
def test_scrambled_json_raises_nothing() -> None:
    rng = random.Random(20260102)
    bodies = [sample.build()[0] for sample in SAMPLES.values() if sample.kind == "body"]
    for _ in range(max(COUNT // 3, 1)):
        scrambled = [_scrambled(rng, event) for event in rng.choice(_STREAMS)]
        events = [event for event in scrambled if isinstance(event, dict)]
        rng.random() < 0.3 and rng.shuffle(events)
        validate_stream(events, request=rng.choice([None, {}, {"tools": [1], "n": "x"}]))
        for accumulator in (ResponseAccumulator(), ChatAccumulator(), MessageAccumulator()):
            for event in events:
                accumulator.feed(event)
            assert [list(answers_of(api, accumulator.body)) for api in get_args(Api)]
        compare_stream(events)
        validate_conversation([_scrambled_exchange(rng, value) for value in rng.choice(_CONVERSATIONS)])
        body = _scrambled(rng, rng.choice(bodies))
        if isinstance(body, dict):
            validate_body(body)


def test_invalid_json_is_a_finding() -> None:
    odd = [
        "[" * 100_000,
        '{"a":' * 5000 + "1" + "}" * 5000,
        "NaN",
        '{"type": NaN}',
        '{"a":1} {"b":2}',
        "1" * 10_000,
        "",
        "[1]",
    ]
    wire = "".join(f"data: {text}\n\n" for text in odd).encode()
    codes = [finding.code for finding in validate_stream(parse_sse([wire]))]
    assert codes.count("SE103") == len(odd)


def test_deeply_nested_item_raises_nothing() -> None:
    depth = 900
    deep = json.loads('{"a":' * depth + "1" + "}" * depth)
    events = SAMPLES["call"].build()
    events[-2]["item"]["x"] = deep
    validate_stream(events)
    validate_body({**events[-1]["response"], "metadata": deep})


def test_oversized_event_is_rejected() -> None:
    with pytest.raises(ProtocolInputError, match="larger than 1000 bytes"):
        list(parse_sse([b"data: "] + [b"x" * 100] * 11, max_event_bytes=1000))


def _endless(events: int) -> Iterator[dict[str, Any]]:
    sample = SAMPLES["text"].build()
    yield from sample[:4]
    for number in range(events):
        yield {**sample[4], "delta": "word " * 20, "sequence_number": 4 + number}


def _wild(events: int) -> Iterator[dict[str, Any]]:
    yield from SAMPLES["text"].build()[:2]
    for number in range(events):
        yield {"type": f"response.strange.{number}", "sequence_number": 2 + number}
        yield {
            "type": "response.output_item.added",
            "output_index": number,
            "item": {"type": "message", "id": str(number)},
        }


@pytest.mark.parametrize("stream", [_endless, _wild])
def test_memory_is_bounded_on_a_long_stream(stream: Any) -> None:
    validator = StreamValidator(max_held=200_000)
    tracemalloc.start()
    try:
        for event in stream(20_000):
            validator.feed(event)
        half, _ = tracemalloc.get_traced_memory()
        for event in stream(20_000):
            validator.feed(event)
        whole, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert whole < 8_000_000
    assert whole < half + 1_000_000


@pytest.mark.parametrize(("sample", "key"), [("text", "content_index"), ("shell", "command_index")])
def test_negative_index_is_a_finding(sample: str, key: str) -> None:
    events = [{**event, key: -7} if key in event else event for event in SAMPLES[sample].build()]
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.feed(event)
    assert accumulator.output
    assert validate_stream(events)


def test_malformed_tool_calls_of_a_request_are_ignored() -> None:
    exchange = Exchange(request={"messages": [{"role": "assistant", "tool_calls": 7}]})
    assert validate_conversation([exchange]) == []
