"""The pace of a long piece of work: how much is done, in what time, and about how long the rest takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic


@dataclass
class Pace:
    """Things that are done one after the other, or several at a time.

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
        """One more is done."""
        self.done += 1
        if self._first is None:
            self._first = self.clock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self._started

    @property
    def left_s(self) -> float | None:
        """About how many seconds the rest takes, if it goes on as it went; None before two are done.

        The first one does not count, since it waits for what all of them need, such as a server's start.
        """
        if self._first is None or self.done < 2:
            return None
        return (self.clock() - self._first) / (self.done - 1) * (self.total - self.done)

    def __str__(self) -> str:
        """`1:10 elapsed, about 3:00 left`."""
        told = f"{minutes(self.elapsed_s)} elapsed"
        return told if self.left_s is None else f"{told}, about {minutes(self.left_s)} left"


def minutes(seconds: float) -> str:
    """A duration as `1:10`, or as `1:01:10` from an hour on."""
    whole, rest = divmod(round(seconds), 60)
    hours, whole = divmod(whole, 60)
    return f"{hours}:{whole:02}:{rest:02}" if hours else f"{whole}:{rest:02}"
