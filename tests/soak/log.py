"""The log of trials: one JSON object per line, added to by every run; its summary, and what that proves."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from math import comb
from pathlib import Path
from typing import Any

CONFIDENCE = 0.95
HEADINGS = (
    "victim",
    "trials",
    "too late",
    "left",
    "next run failed",
    "did not end",
    "upper bound",
    "exit codes",
)


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A line of the log.

    Attributes:
        at, commit: when the trial began, and the checked out commit.
        seed, number, victim, command, by, share: see `Trial`.
        busy: how many processes kept the cores busy.
        killed_s: seconds from the command's start to the kill; None if the command was done before.
        code: the command's exit code, negative for a signal; None if it did not end.
        seconds: how long the command ran.
        left: what was still there a minute after the kill: processes, ports, shared memory, folders of
            servers, GPU memory.
        next_code, next_seconds: exit code and duration of the next run; None after a kill that came too late.
        next_left: what was still there after the next run, including temporary folders, leases and notes.
        output: after a fault, the end of the output of both runs.
    """

    at: str
    commit: str
    kind: str = "kills"
    seed: int
    number: int
    victim: str
    command: str
    by: str
    share: float
    busy: int
    killed_s: float | None
    code: int | None
    seconds: float
    left: list[str] = field(default_factory=list)
    next_code: int | None = None
    next_passed: bool = True
    next_seconds: float | None = None
    next_left: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)

    @property
    def late(self) -> bool:
        """Whether the command was done before the kill, so that the trial shows nothing."""
        return self.killed_s is None

    @property
    def is_fault(self) -> bool:
        """Whether something was left, the next run failed, or the command did not end."""
        return bool(self.left or self.next_left or self.code is None or not self.next_passed)

    def sentence(self) -> str:
        """Describes the trial in a line."""
        killed = (
            "was done before the kill" if self.late else f"{self.victim} killed after {self.killed_s:.1f} s"
        )
        ended = "did not end" if self.code is None else f"exit {self.code}"
        parts = [
            f"{self.command}: {killed}",
            f"{ended} after {self.seconds:.1f} s",
            f"left: {len(self.left)}",
        ]
        if not self.late:
            passed = "passed" if self.next_passed else f"FAILED with exit {self.next_code}"
            parts.append(f"next run {passed} in {self.next_seconds:.1f} s, left: {len(self.next_left)}")
        return "; ".join([*parts, *self.left, *self.next_left])


def append(result: TrialResult, log: Path) -> None:
    """Adds a line to the log; a line that a killed process left unfinished stays a line of its own."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(asdict(result)).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(log: Path) -> list[TrialResult]:
    """Reads the trials of a log; lines that are not whole, or of another version, are skipped."""
    results = []
    with suppress(FileNotFoundError):
        for line in log.read_text(errors="replace").splitlines():
            with suppress(ValueError, TypeError):
                written: Mapping[str, Any] = json.loads(line)
                results.append(TrialResult(**written))
    return results


def rows(results: Sequence[TrialResult]) -> list[tuple[str, ...]]:
    """The rows of the summary: one for each kind of process, and one for all."""
    kinds = dict.fromkeys(result.victim for result in results)
    parts = {kind: [result for result in results if result.victim == kind] for kind in kinds}
    return [_row(kind, part) for kind, part in {**parts, "all": results}.items()]


def _row(name: str, results: Iterable[TrialResult]) -> tuple[str, ...]:
    results = list(results)
    counted = [result for result in results if not result.late]
    faults = sum(result.is_fault for result in counted)
    codes = Counter(str(result.code) for result in counted)
    numbers = (
        len(counted),
        len(results) - len(counted),
        sum(bool(result.left or result.next_left) for result in results),
        sum(not result.next_passed for result in results),
        sum(result.code is None for result in results),
    )
    bound = f"{100 * upper_bound(faults, len(counted)):.1f} %"
    listed = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
    return (name, *map(str, numbers), bound, listed)


def upper_bound(faults: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """The largest probability of a fault that the trials do not rule out, with this confidence.

    Without a fault it is 1 - (1 - confidence) ** (1 / trials), about 3 / trials. With faults it is the bound
    of Clopper and Pearson: the probability that gives so few faults in only 5 % of all cases.
    """
    low, high = 0.0, 1.0
    if faults >= trials:
        return high
    while high - low > 1e-12:
        middle = (low + high) / 2
        few = sum(comb(trials, k) * middle**k * (1 - middle) ** (trials - k) for k in range(faults + 1))
        low, high = (middle, high) if few > 1 - confidence else (low, middle)
    return high
