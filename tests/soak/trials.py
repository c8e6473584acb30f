"""Draws trials by a seed: which process of which command is killed, and at which moment."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

WITH_SERVER = ("scenario", "load", "record", "serve", "run")
VICTIMS = {
    "owner": ("scenario", "serve", "run", "regression", "regression over HTTP"),
    "supervisor": WITH_SERVER,
    "fork server": WITH_SERVER,
    "API server": WITH_SERVER,
    "engine": WITH_SERVER,
    "regression worker": ("regression",),
    "load client": ("load",),
    "recorder": ("record", "proxy"),
}
"""The kinds of processes that are killed, each with the commands that have one."""
FATAL = VICTIMS.keys() - {"fork server"}
"""The victims without which their command must end by itself, though perhaps with results."""


@dataclass(frozen=True)
class Trial:
    """A kill that has been drawn.

    Attributes:
        seed, number: what determines the trial.
        victim: the kind of process to kill, a key of `VICTIMS`.
        command: the command whose process it is.
        by: whether the moment is a share of the command's usual seconds, or of its usual lines of output.
        share: that share, from 0 to 1; of several processes of the kind, it also chooses one.
        after_s: seconds between the line and the kill.
    """

    seed: int
    number: int
    victim: str
    command: str
    by: Literal["seconds", "lines"]
    share: float
    after_s: float

    def moment(self, usual_s: float, usual_lines: int) -> tuple[float, int]:
        """After how many seconds and how many lines of output the kill is due."""
        if self.by == "seconds":
            return self.share * usual_s, 0
        return 0.0, 1 + int(self.share * max(0, usual_lines - 1))


def draw(seed: int, number: int, victims: Sequence[str]) -> Trial:
    """Draws the trial with this number; the victims take turns."""
    drawn = random.Random(f"{seed} {number}")
    victim = victims[number % len(victims)]
    return Trial(
        seed=seed,
        number=number,
        victim=victim,
        command=drawn.choice(VICTIMS[victim]),
        by=drawn.choice(("seconds", "lines")),
        share=drawn.random(),
        after_s=drawn.random(),
    )
