"""The pace of a long task: the elapsed time, and an estimate of the remaining time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

SAMPLE = 0.03
"""The share of the steps that must be done before an estimate is meaningful."""


@dataclass
class Pace:
    """Counts steps, and estimates how long the remaining steps will take.

    Attributes:
        total: the number of steps.
        clock: returns the time in seconds since an arbitrary start.
        done: the number of finished steps.
    """

    total: int
    clock: Callable[[], float] = monotonic
    done: int = 0
    _started: float = field(init=False)
    _first: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def advance(self) -> None:
        """Counts a step as done."""
        self.done += 1
        if self._first is None:
            self._first = self.clock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self._started

    @property
    def left_s(self) -> float | None:
        """An estimate of the seconds that remain; None until enough steps are done.

        The first step does not count, since it includes work for all steps, such as the start of a server.
        """
        if self._first is None or self.done < max(2, SAMPLE * self.total):
            return None
        return (self.clock() - self._first) / (self.done - 1) * (self.total - self.done)

    def __str__(self) -> str:
        """Formats the pace, such as `1:10 elapsed, about 3:00 left`."""
        elapsed = f"{minutes(self.elapsed_s)} elapsed"
        return elapsed if self.left_s is None else f"{elapsed}, about {minutes(self.left_s)} left"


def minutes(seconds: float) -> str:
    """Formats a duration as `1:10`, or as `1:01:10` if it is an hour or longer."""
    whole, rest = divmod(round(seconds), 60)
    hours, whole = divmod(whole, 60)
    return f"{hours}:{whole:02}:{rest:02}" if hours else f"{whole}:{rest:02}"
