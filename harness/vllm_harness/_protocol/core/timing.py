"""Timing facts of a stream from recorded arrival times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from vllm_harness._protocol.core.events import AnyEvent, as_json

# a stream of several deltas is a burst where they all come within this part of the time it took
_BURST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class TimingFacts:
    """When the events of a stream came, in seconds after the request.

    Attributes:
        events: how many.
        deltas: how many of them carried text.
        first_event: the first of all; None for an empty stream.
        first_delta: the first that carried text; None where there was none.
        last_delta: the last that carried text.
        last_event: the last of all.
        largest_gap: longest wait between two deltas; None with fewer than two.
        median_gap: the middle one of these waits.
        incremental: the content was spread over the time, not delivered in one burst at the end; None with
            fewer than three deltas, of which nobody can say.
    """

    events: int
    deltas: int
    first_event: float | None
    first_delta: float | None
    last_delta: float | None
    last_event: float | None
    largest_gap: float | None
    median_gap: float | None
    incremental: bool | None


def timing_facts(arrivals: Iterable[tuple[float, AnyEvent]]) -> TimingFacts:
    """Facts of one stream.

    Args:
        arrivals: (seconds since the request was sent, event), in order of arrival.

    Raises:
        ValueError: the times go backwards.
    """
    times: list[float] = []
    deltas: list[float] = []
    for at, event in arrivals:
        if times and at < times[-1]:
            raise ValueError(f"arrival times go backwards: {times[-1]} then {at}")
        times.append(at)
        if carries_text(event):
            deltas.append(at)
    gaps = [after - before for before, after in pairwise(deltas)]
    return TimingFacts(
        events=len(times),
        deltas=len(deltas),
        first_event=times[0] if times else None,
        first_delta=deltas[0] if deltas else None,
        last_delta=deltas[-1] if deltas else None,
        last_event=times[-1] if times else None,
        largest_gap=max(gaps, default=None),
        median_gap=median(gaps) if gaps else None,
        incremental=_spread(deltas) if len(deltas) > 2 else None,
    )


def _spread(deltas: list[float]) -> bool:
    return deltas[-1] - deltas[0] > _BURST_SHARE * deltas[-1]


def carries_text(event: AnyEvent) -> bool:
    """Whether an event of any API brings words, thoughts or a part of a call."""
    value = as_json(event)
    if value is None:
        return False
    if isinstance(value.get("delta"), (str, dict)):
        return bool(value["delta"])
    choices = value.get("choices")
    if not isinstance(choices, list):
        return False
    for choice in choices:
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and any(delta[key] for key in delta if key != "role"):
            return True
    return False
