"""Where each cell of a run ran: `places.jsonl` of the run folder, and how busy each node was."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "places.jsonl"


@dataclass(frozen=True)
class Placement:
    """Where a cell ran.

    Attributes:
        cell: its name.
        shard: that it was of.
        node: the name of the node.
        seconds: how long it took.
        begun: how often its shard had been begun.
        at: when it had finished, seconds since the beginning of the run.
    """

    cell: str
    shard: str
    node: str
    seconds: float
    begun: int
    at: float


@dataclass(frozen=True)
class NodeUse:
    """What a node did in a run.

    Attributes:
        node: its name.
        cells: how many it ran.
        again: how many of these were of a shard that had been begun before.
        busy_s: the seconds of its cells, added up.
        at_a_time: of those that ran at the same time, in the mean over the run.
    """

    node: str
    cells: int
    again: int
    busy_s: float
    at_a_time: float


def placements_in(folder: Path) -> list[Placement]:
    """What a run's folder says of its cells; a line that was cut by a kill is left aside."""
    path = folder / FILE
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [Placement(**json.loads(line)) for line in lines if line.endswith("\n")]


class Places:
    """Keeps where cells ran, a line each, at once.

    Args:
        folder: of the run; made with the first line.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._lock = threading.Lock()
        self._cells: Counter[str] = Counter()
        self._again: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._end = 0.0

    def add(self, placed: Placement) -> None:
        """Keeps where a cell ran."""
        self._cells[placed.node] += 1
        self._again[placed.node] += placed.begun > 1
        self._seconds[placed.node] = self._seconds.get(placed.node, 0.0) + placed.seconds
        self._end = max(self._end, placed.at)
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(placed)) + "\n")

    def uses(self) -> list[NodeUse]:
        """What each node did so far, by name."""
        return [
            NodeUse(
                node,
                self._cells[node],
                self._again[node],
                round(self._seconds[node], 1),
                round(self._seconds[node] / self._end, 2) if self._end else 0.0,
            )
            for node in sorted(self._cells)
        ]
