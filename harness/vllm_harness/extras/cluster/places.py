"""Records where each cell of a run ran, in `places.jsonl` of the run folder, and how busy each node was."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

FILE, LOG = "places.jsonl", "ray.log"
"""The file of the placements, and that of Ray's own messages."""


@dataclass(frozen=True)
class Placement:
    """Where a cell ran: a line of `places.jsonl`.

    Attributes:
        cell: the name of the cell.
        shard: the name of its shard.
        node: the name of the node.
        seconds: how long the cell took.
        begun: how many times its shard had been started.
        at: when the cell finished, in seconds since the start of the run.
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
        node: the name of the node.
        cells: how many cells it ran.
        again: how many of these belonged to a shard that had been started before.
        busy_s: the total duration of the cells in seconds.
        at_a_time: the mean number of cells that ran at the same time.
    """

    node: str
    cells: int
    again: int
    busy_s: float
    at_a_time: float


def placements_in(folder: Path) -> list[Placement]:
    """Reads where the cells of a run ran; ignores a truncated last line, as a killed process leaves."""
    path = folder / FILE
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [Placement(**json.loads(line)) for line in lines if line.endswith("\n")]


class Places:
    """Writes where each cell ran, one line for each cell, without delay.

    Args:
        folder: the folder of the run, which is created with the first line.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._lock = threading.Lock()
        self._cells: Counter[str] = Counter()
        self._again: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._end = 0.0

    def add(self, placed: Placement) -> None:
        """Writes where a cell ran."""
        self._cells[placed.node] += 1
        self._again[placed.node] += placed.begun > 1
        self._seconds[placed.node] = self._seconds.get(placed.node, 0.0) + placed.seconds
        self._end = max(self._end, placed.at)
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(placed)) + "\n")

    def uses(self) -> list[NodeUse]:
        """What each node has done so far, sorted by name."""
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
