"""Every fault in the table, wherever it can be made in every valid stream, is found by its code."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.unit.protocol import mutations
from tests.unit.protocol.mutations import Events, Mutation
from tests.unit.protocol.recorded import STREAMS
from vllm_harness.protocol import validate_stream
from vllm_harness.protocol.samples import SAMPLES

# VLLM_HARNESS_MUTATIONS=all tries every place of every stream, else a few places of the shorter streams
ALL_PLACES = os.environ.get("VLLM_HARNESS_MUTATIONS") == "all"
MOST_PLACES = 10**9 if ALL_PLACES else 2
LONGEST_STREAM = 10**9 if ALL_PLACES else 70


def _renumbered(events: Events, mutation: Mutation) -> Events:
    """The faults must be found by their own rule, not by a gap in the numbers."""
    if "sequence" in mutation.name or not events or "sequence_number" not in events[0]:
        return events
    first = events[0]["sequence_number"]
    return [{**event, "sequence_number": number} for number, event in enumerate(events, first)]


def _responses() -> list[tuple[str, Events]]:
    recorded = [
        (stream.name, stream.events)
        for stream in STREAMS
        if stream.events[0]["type"] == "response.created" and "sequence_number" in stream.events[0]
    ]
    made = [(name, sample.build()) for name, sample in SAMPLES.items() if sample.kind == "responses"]
    recorded = [(name, events) for name, events in recorded if len(events) <= LONGEST_STREAM]
    return recorded + [(name, events) for name, events in made if events[-1]["type"] == "response.completed"]


def _made(kind: str) -> list[tuple[str, Events]]:
    return [(name, sample.build()) for name, sample in SAMPLES.items() if sample.kind == kind]


@pytest.mark.timeout(1800)
def test_mutations_are_caught(capsys: pytest.CaptureFixture[str]) -> None:
    tried: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    missed: list[str] = []
    for api, table, streams in (
        ("responses", mutations.RESPONSES, _responses()),
        ("chat", mutations.CHAT, _made("chat")),
        ("messages", mutations.MESSAGES, _made("messages")),
    ):
        for mutation in table:
            key = f"{api}: {mutation.name}"
            for name, events in streams:
                for at, mutated in mutations.applied(mutation, events, MOST_PLACES):
                    findings = validate_stream(_renumbered(mutated, mutation), api=api, resumed=False)
                    codes = {finding.code for finding in findings}
                    found = bool(codes & mutation.codes)
                    if not mutation.codes:
                        found = not any(finding.counts for finding in findings)
                    tried[key] += 1
                    caught[key] += found
                    if not found:
                        missed.append(f"{key} at {at} of {name}: {sorted(codes)}")
    total, hits = sum(tried.values()), sum(caught.values())
    with capsys.disabled():
        print(f"\n{len(tried)} mutations, {hits} of {total} caught: {hits / total:.2%}")
        for line in missed[:40]:
            print(f"  missed {line}")
    rows = len(mutations.RESPONSES) + len(mutations.CHAT) + len(mutations.MESSAGES)
    assert len(tried) == rows >= 60, "each applies somewhere"
    assert hits / total >= 0.99
