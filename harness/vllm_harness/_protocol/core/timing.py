"""Facts about the timing of a stream, from recorded arrival times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from vllm_harness._protocol.core.events import AnyEvent, as_json

# A stream is a burst if all of its deltas arrive within this share of its duration.
_BURST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class TimingFacts:
    """The arrival times of the events of a stream, in seconds after the request.

    Attributes:
        events: the number of events.
        deltas: the number of events that carried text.
        first_event: the time of the first event; None for an empty stream.
        first_delta: the time of the first event that carried text; None if there was none.
        last_delta: the time of the last event that carried text; None if there was none.
        last_event: the time of the last event; None for an empty stream.
        largest_gap: the longest time between two consecutive deltas; None with fewer than two deltas.
        median_gap: the median time between consecutive deltas; None with fewer than two deltas.
        incremental: whether the content arrived over the stream's duration, not in one burst at the end; None
            with fewer than three deltas, which are too few to decide.
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
    """Computes the timing facts of one stream.

    Args:
        arrivals: pairs of seconds since the request and event, in order of arrival.

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
        incremental=deltas[-1] - deltas[0] > _BURST_SHARE * deltas[-1] if len(deltas) > 2 else None,
    )


def carries_text(event: AnyEvent) -> bool:
    """Whether an event of any API carries a piece of text, reasoning or a call."""
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
