"""How fast streams are validated, beside the openai SDK's decoding and `json.loads` of the same bytes."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
from openai import OpenAI, Stream
from openai.types.responses import ResponseStreamEvent

from vllm_harness._protocol.captures import read_capture
from vllm_harness._protocol.core.events import Json, as_json
from vllm_harness._protocol.core.sse import parse_sse
from vllm_harness._protocol.responses.render import message, reasoning, response_events
from vllm_harness._protocol.streams import StreamValidator, validate_stream
from vllm_harness._protocol.watching import watch

ADDED_GOAL = 0.25
JSON_GOAL = 2.0
_CHUNK = 4096


def main() -> None:
    """Prints events per second and the two ratios which have a goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures", nargs="*", help="Responses streams; a made-up one without any")
    parser.add_argument("--seconds", type=float, default=8.0, help="time to spend in all")
    options = parser.parse_args()
    streams = _recorded(options.captures) or [_made()]
    wires = [_wire(events) for events in streams]
    texts = [[json.dumps(event, separators=(",", ":")) for event in events] for events in streams]
    client = OpenAI(api_key="none")

    def loads() -> None:
        for lines in texts:
            for line in lines:
                json.loads(line)

    def decode() -> None:
        for wire in wires:
            for _ in _sdk_stream(client, wire):
                pass

    def watched() -> None:
        for wire in wires:
            for _ in watch(_sdk_stream(client, wire), raises=False):
                pass

    def parse() -> None:
        for wire in wires:
            for _ in parse_sse(_chunks(wire)):
                pass

    def validate_bytes() -> None:
        for wire in wires:
            validate_stream(parse_sse(_chunks(wire)))

    def validate_events() -> None:
        for events in streams:
            validator = StreamValidator()
            for event in events:
                validator.feed(event)
            validator.close()

    jobs: dict[str, Callable[[], None]] = {
        "json.loads alone": loads,
        "SDK decoding": decode,
        "SDK decoding, watched": watched,
        "bytes to events": parse,
        "bytes to validated events": validate_bytes,
        "validation alone": validate_events,
    }
    events = sum(map(len, streams))
    best = _best_times(list(jobs.values()), options.seconds)
    took = dict(zip(jobs, best, strict=True))
    print(f"{len(streams)} streams, {events} events, {sum(map(len, wires)) // events} bytes an event")
    for name, seconds in took.items():
        print(f"{name:28} {events / seconds:10,.0f} events/s {seconds / events * 1e6:8.2f} us an event")
    added = took["SDK decoding, watched"] / took["SDK decoding"] - 1
    own = took["validation alone"] / took["json.loads alone"]
    whole = took["bytes to validated events"] / took["json.loads alone"]
    print(f"validation adds to SDK decoding: {added:6.1%} (goal: at most {ADDED_GOAL:.0%})")
    print(f"validation beside json.loads:    {own:5.2f}x (goal: at most {JSON_GOAL:.0f}x)")
    print(f"bytes to validated events:       {whole:5.2f}x json.loads, framing and json.loads included")


def _recorded(files: Sequence[str]) -> list[list[Json]]:
    streams = []
    for file in files:
        for exchange in read_capture(Path(file)).exchanges:
            values = [value for event in exchange.events or () if (value := as_json(event)) is not None]
            if values:
                streams.append(values)
    return streams


def _made() -> list[Json]:
    words = " ".join(f"word{number}" for number in range(2000))
    return response_events(
        [reasoning(words), message(words)],
        split=lambda text: [text[at : at + 7] for at in range(0, len(text), 7)],
    )


def _wire(events: Sequence[Json]) -> bytes:
    blocks = (
        f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n" for event in events
    )
    return "".join(blocks).encode()


def _chunks(wire: bytes) -> list[bytes]:
    return [wire[at : at + _CHUNK] for at in range(0, len(wire), _CHUNK)]


def _sdk_stream(client: OpenAI, wire: bytes) -> Stream[ResponseStreamEvent]:
    answer = httpx.Response(
        200, content=iter(_chunks(wire)), request=httpx.Request("POST", "http://localhost")
    )
    return Stream(cast_to=ResponseStreamEvent, response=answer, client=client)  # type: ignore[arg-type]


def _best_times(jobs: Sequence[Callable[[], None]], seconds: float) -> list[float]:
    """Best processor time of each job, the jobs taking turns so that a busy machine slows all alike."""
    best = [float("inf")] * len(jobs)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number, job in enumerate(jobs):
            start = time.process_time()
            job()
            best[number] = min(best[number], time.process_time() - start)
    return best


if __name__ == "__main__":
    main()
