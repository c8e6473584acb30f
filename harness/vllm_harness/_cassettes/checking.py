"""Checks the exchanges of a cassette, one by one and as a conversation, against the API rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vllm_harness._cassettes.format import Recorded
from vllm_harness._cassettes.reading import LoadedCassette
from vllm_harness._defects.registry import Defects, known_deviations
from vllm_harness._protocol import Finding, apply_known, validate_conversation
from vllm_harness._protocol.captures import every_finding, line_between


class CassetteFinding(NamedTuple):
    """A finding in a cassette.

    Attributes:
        turn: the name of the turn; empty if the finding concerns several turns.
        line: the line number in the cassette file.
        finding: the finding, marked with the known defect that explains it, if any.
    """

    turn: str
    line: int
    finding: Finding


def check(read: LoadedCassette, defects: Defects | None = None) -> list[CassetteFinding]:
    """Checks a cassette against the API rules.

    Args:
        read: the cassette.
        defects: vLLM's known defects, by default the package's; used if the cassette names a vLLM version.
    """
    findings = [*_in_turns(read), *_between_turns(read)]
    recorded = read.cassette.recorded
    if not recorded.vllm:
        return findings
    known = known_deviations(recorded.model, recorded.vllm, defects)
    marked = apply_known([each.finding for each in findings], known, recorded.vllm)
    return [each._replace(finding=finding) for each, finding in zip(findings, marked, strict=True)]


def _in_turns(read: LoadedCassette) -> Iterator[CassetteFinding]:
    capture = read.capture
    for number, exchange in enumerate(read.cassette.exchanges):
        lines = capture.lines[number] if capture.lines else ()
        start = capture.begins[number] if capture.begins else 1
        for finding in every_finding(capture.exchanges[number]):
            index = finding.event_index
            line = lines[index] if index is not None and index < len(lines) else start
            yield CassetteFinding(exchange.turn, line, finding)


def _between_turns(read: LoadedCassette) -> Iterator[CassetteFinding]:
    for finding in validate_conversation(read.capture.exchanges, complete=read.capture.complete):
        yield CassetteFinding("", line_between(read.capture, finding), finding)


def about(recorded: Recorded) -> str:
    """Describes the origin of a cassette in one line."""
    parts = (
        recorded.model or recorded.served,
        f"vLLM {recorded.vllm}" if recorded.vllm else "",
        recorded.lane,
        recorded.transport,
        recorded.at,
    )
    return ", ".join(filter(None, parts)) or "an unknown server"
