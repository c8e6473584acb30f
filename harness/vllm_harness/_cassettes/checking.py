"""A cassette by itself: the rules of the APIs over its exchanges, and what its streams add up to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vllm_harness._cassettes.format import Recorded
from vllm_harness._cassettes.reading import Read
from vllm_harness._defects.registry import Defects, known_deviations
from vllm_harness._protocol import Finding, apply_known, validate_conversation
from vllm_harness._protocol.captures import every_finding, line_between


class CassetteFinding(NamedTuple):
    """A finding of a cassette.

    Attributes:
        turn: in which; empty: between turns.
        line: of the file.
        finding: what was found; known ones are marked.
    """

    turn: str
    line: int
    finding: Finding


def check(read: Read, defects: Defects | None = None) -> list[CassetteFinding]:
    """What the rules find in a cassette.

    Args:
        read: the cassette.
        defects: of vLLM that are known; by default the package's. They count where the cassette says which
            vLLM it was recorded from.
    """
    found = [*_of_turns(read), *_between(read)]
    recorded = read.cassette.recorded
    if not recorded.vllm:
        return found
    known = known_deviations(recorded.model, recorded.vllm, defects)
    marked = apply_known([each.finding for each in found], known, recorded.vllm)
    return [each._replace(finding=finding) for each, finding in zip(found, marked, strict=True)]


def _of_turns(read: Read) -> Iterator[CassetteFinding]:
    capture = read.capture
    for number, exchange in enumerate(read.cassette.exchanges):
        lines = capture.lines[number] if capture.lines else ()
        begin = capture.begins[number] if capture.begins else 1
        for finding in every_finding(capture.exchanges[number]):
            index = finding.event_index
            line = lines[index] if index is not None and index < len(lines) else begin
            yield CassetteFinding(exchange.turn, line, finding)


def _between(read: Read) -> Iterator[CassetteFinding]:
    for finding in validate_conversation(read.capture.exchanges, complete=read.capture.complete):
        yield CassetteFinding("", line_between(read.capture, finding), finding)


def about(recorded: Recorded) -> str:
    """Where a cassette comes from, in a line."""
    parts = (
        recorded.model or recorded.served,
        f"vLLM {recorded.vllm}" if recorded.vllm else "",
        recorded.lane,
        recorded.transport,
        recorded.at,
    )
    return ", ".join(filter(None, parts)) or "an unknown server"
