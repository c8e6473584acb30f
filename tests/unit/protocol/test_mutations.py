"""The rules find every mutation in the table, in every valid stream to which it applies."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import pytest

from tests.unit.protocol import mutations
from tests.unit.protocol.mutations import Events, Mutation
from tests.unit.protocol.recorded import STREAMS
from vllm_harness._protocol import validate_stream
from vllm_harness._protocol.core.events import Api
from vllm_harness._protocol.rules import RULES
from vllm_harness._protocol.samples import SAMPLES, kind_of

# VLLM_HARNESS_MUTATIONS=all mutates every event of every stream; otherwise, only a few of short streams.
ALL_PLACES = os.environ.get("VLLM_HARNESS_MUTATIONS") == "all"
MOST_PLACES = 10**9 if ALL_PLACES else 2
LONGEST_STREAM = 10**9 if ALL_PLACES else 70
# Rules for anything else (framing, bodies, conversations, comparisons) are tested only by their examples.
STREAMS_OF_EVENTS: tuple[Api, ...] = ("responses", "chat", "messages")


class Try(NamedTuple):
    """One mutated stream, and the codes of its findings."""

    place: str
    codes: frozenset[str]
    counting: frozenset[str]


def _renumbered(events: Events, mutation: Mutation) -> Events:
    """Renumbers the events, so that no mutation is found only through a gap in the numbers."""
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
    samples = [(name, sample.build()) for name, sample in SAMPLES.items() if sample.kind == "responses"]
    recorded = [(name, events) for name, events in recorded if len(events) <= LONGEST_STREAM]
    return recorded + [
        (name, events) for name, events in samples if events[-1]["type"] == "response.completed"
    ]


def _samples(kind: str) -> list[tuple[str, Events]]:
    return [(name, sample.build()) for name, sample in SAMPLES.items() if sample.kind == kind]


@cache
def _all_tries() -> list[tuple[str, Mutation, list[Try]]]:
    """Each mutation with its name, and a try for each event to which it was applied."""
    tables: tuple[tuple[Api, Sequence[Mutation], list[tuple[str, Events]]], ...] = (
        ("responses", mutations.RESPONSES, _responses()),
        ("chat", mutations.CHAT, _samples("chat")),
        ("messages", mutations.MESSAGES, _samples("messages")),
    )
    return [
        (f"{api}: {mutation.name}", mutation, list(_tries(api, mutation, streams)))
        for api, table, streams in tables
        for mutation in table
    ]


def _tries(api: Api, mutation: Mutation, streams: list[tuple[str, Events]]) -> Iterator[Try]:
    for name, events in streams:
        for at, mutated in mutations.applied(mutation, events, MOST_PLACES):
            findings = validate_stream(_renumbered(mutated, mutation), api=api, resumed=False)
            codes = frozenset(finding.code for finding in findings)
            yield Try(f"at {at} of {name}", codes, frozenset(f.code for f in findings if f.counts))


@pytest.mark.timeout(1800)
def test_every_mutation_is_found() -> None:
    missed = [
        f"{name} {attempt.place}: {sorted(attempt.codes)}"
        for name, mutation, tries in _all_tries()
        for attempt in tries
        if (not attempt.codes & mutation.codes if mutation.codes else attempt.counting)
    ]
    assert not missed, "\n".join(missed[:40])


@pytest.mark.timeout(1800)
def test_every_mutation_applies_somewhere() -> None:
    assert not [name for name, _, tries in _all_tries() if not tries]


@pytest.mark.timeout(1800)
def test_every_stream_rule_always_finds_one_of_its_mutations() -> None:
    sometimes, always = defaultdict(list), set[str]()
    for name, mutation, tries in _all_tries():
        always |= mutation.codes.intersection(*(attempt.codes for attempt in tries))
        for code in mutation.codes:
            sometimes[code].append(name)
    stream_rules = {code for code, rule in RULES.items() if kind_of(rule.bad) in STREAMS_OF_EVENTS}
    lacking = [
        f"{code}: {f'not in every try of {sometimes[code]}' if code in sometimes else 'no mutation names it'}"
        for code in sorted(stream_rules - always - set(mutations.BEYOND_EVENTS))
    ]
    assert not lacking, "add a mutation to mutations.py, or a reason to BEYOND_EVENTS:\n" + "\n".join(lacking)
    assert set(mutations.BEYOND_EVENTS) <= stream_rules - always, (
        "an entry of BEYOND_EVENTS is no longer needed"
    )
