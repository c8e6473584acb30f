"""The pace of a long piece of work: how much is done, in what time, and the estimated rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

SAMPLE = 0.03
"""The share of the steps that must be done before the rest is estimated: fewer say too little."""


@dataclass
class Pace:
    """Steps that are done one after the other, or several at a time.

    Attributes:
        total: how many there are.
        clock: seconds, from any start.
        done: how many are done.
    """

    total: int
    clock: Callable[[], float] = monotonic
    done: int = 0
    _started: float = field(init=False)
    _first: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def advance(self) -> None:
        """Counts a further step as done."""
        self.done += 1
        if self._first is None:
            self._first = self.clock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self._started

    @property
    def left_s(self) -> float | None:
        """About how many seconds the rest takes, at the pace so far; None while few steps are done.

        The first step does not count, since it waits for what all of them need, such as a server's start.
        """
        if self._first is None or self.done < max(2, SAMPLE * self.total):
            return None
        return (self.clock() - self._first) / (self.done - 1) * (self.total - self.done)

    def __str__(self) -> str:
        """`1:10 elapsed, about 3:00 left`."""
        elapsed = f"{minutes(self.elapsed_s)} elapsed"
        return elapsed if self.left_s is None else f"{elapsed}, about {minutes(self.left_s)} left"


def minutes(seconds: float) -> str:
    """A duration as `1:10`, or as `1:01:10` from an hour on."""
    whole, rest = divmod(round(seconds), 60)
    hours, whole = divmod(whole, 60)
    return f"{hours}:{whole:02}:{rest:02}" if hours else f"{whole}:{rest:02}"
