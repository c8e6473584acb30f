"""Which shard runs next on which node: all of the choice that is ours, before the cluster's own scheduler.

Heavy shards first, so that none is left over at the end, but where a fork server holds what a shard needs, or
a node is prepared for it, that node prefers it. Pure bookkeeping: no clock, no cluster.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any

from vllm_harness._machine.shard import Needs, Shard

ATTEMPTS = 3
"""How often a shard is begun at most without that a cell of it finishes."""
SERVERS_HELD = 4
"""How many models the fork servers of a node are taken to hold."""
_URGENT = 0.5
"""A shard that is at least this part of what a slot has left to do in the mean runs before all others."""


@dataclass
class Attempt:
    """A shard on its way.

    Attributes:
        shard: what runs, or is to run.
        left: its cells that have not finished.
        lost: since a cell of it last finished: the nodes on which it failed, each with what happened.
        begun: how often it was begun.
        several: whether it takes GPUs of several nodes.
        taken: what it takes of each node while it runs, by the node's name.
    """

    shard: Shard[Any]
    left: tuple[str, ...]
    lost: tuple[tuple[str, str], ...] = ()
    begun: int = 0
    several: bool = False
    taken: dict[str, Needs] = field(default_factory=dict)

    @property
    def weight(self) -> float:
        """About how long the rest takes."""
        return self.shard.weight * len(self.left) / max(1, len(self.shard.cells))


@dataclass
class NodeState:
    """A node, what is free on it, and what it holds.

    Attributes:
        name: Ray's id of it.
        free: what no running shard takes.
        gpu_type: the kind of its GPUs.
        servers: what its fork servers hold, as shards name it, the last ones used.
        prepared: the preparations that it has made.
        refused: the preparations that it could not make.
    """

    name: str
    free: Needs
    gpu_type: str = ""
    servers: deque[str] = field(default_factory=lambda: deque(maxlen=SERVERS_HELD))
    prepared: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def fits(self, needs: Needs) -> bool:
        """Whether so much is free."""
        free = self.free
        if needs.gpu_type and needs.gpu_type != self.gpu_type:
            return False
        return needs.cpus <= free.cpus and needs.memory_gib <= free.memory_gib and needs.gpus <= free.gpus

    def holds(self, server: str) -> None:
        """Notes what its fork servers hold from now on."""
        if server and server not in self.servers:
            self.servers.append(server)

    def take(self, needs: Needs, sign: int = 1) -> None:
        """Counts so much as taken; with the sign -1 as given back."""
        self.free = Needs(
            round(self.free.cpus - sign * needs.cpus, 6),
            round(self.free.memory_gib - sign * needs.memory_gib, 6),
            self.free.gpus - sign * needs.gpus,
        )


Key = tuple[Needs, str, str]


class Dispatcher:
    """Hands out shards to nodes.

    Args:
        shards: all that are to run.
        slots: about how many run at a time.
    """

    def __init__(self, shards: list[Shard[Any]], slots: int) -> None:
        self._slots = max(1, slots)
        self._numbers = count()
        self._queues: dict[Key, list[tuple[float, int, Attempt]]] = {}
        self._wanted: Counter[tuple[Needs, str]] = Counter()
        self._again: list[Attempt] = []
        self._taken: set[int] = set()
        self._pending_weight = 0.0
        self.pending = 0
        for shard in shards:
            self._push(Attempt(shard, shard.cells))

    def give_back(self, attempt: Attempt) -> None:
        """Has the rest of a shard run once more, on another node than where it failed if there is one."""
        if attempt.lost:
            self._again.append(attempt)
            self._count(attempt, 1)
        else:
            self._push(attempt)

    def next_for(self, node: NodeState, others: bool = True, gpus: bool = True) -> Attempt | None:
        """The shard that is to run next on a node, taken out; None where none fits.

        Args:
            others: whether there are other nodes, so that what failed here waits for one of them.
            gpus: whether it may take GPUs.
        """
        return self._failed_elsewhere(node, others, gpus) or self._queued(node, gpus)

    def take_unrunnable(self, nodes: list[NodeState]) -> list[Attempt]:
        """Takes out what fits on none of these nodes, which are given with all that they have."""
        found = []
        for needs, preparation in [each for each, number in self._wanted.items() if number]:
            if any(node.fits(needs) and preparation not in node.refused for node in nodes):
                continue
            while attempt := self._pop([(needs, preparation, "")]):
                found.append(attempt)
        for attempt in list(self._again):
            if not any(may_run(node, attempt.shard) and node.fits(attempt.shard.needs) for node in nodes):
                self._again.remove(attempt)
                self._count(attempt, -1)
                found.append(attempt)
        return found

    def _failed_elsewhere(self, node: NodeState, others: bool, gpus: bool) -> Attempt | None:
        for number, attempt in enumerate(self._again):
            if attempt.shard.needs.gpus and not gpus:
                continue
            here = others and any(node.name == name for name, _ in attempt.lost)
            if not here and may_run(node, attempt.shard) and node.fits(attempt.shard.needs):
                self._count(attempt, -1)
                return self._again.pop(number)
        return None

    def _queued(self, node: NodeState, gpus: bool) -> Attempt | None:
        fitting = [
            each
            for each, number in self._wanted.items()
            if number and each[1] not in node.refused and node.fits(each[0]) and (gpus or not each[0].gpus)
        ]
        any_: list[Key] = [(*each, "") for each in fitting]
        heaviest = self._peek(any_)
        if heaviest is None:
            return None
        if heaviest.weight >= _URGENT * self._pending_weight / self._slots:
            return self._pop(any_)
        held: list[Key] = [(*each, server) for each in fitting for server in node.servers]
        prepared: list[Key] = [key for key in any_ if key[1] in node.prepared]
        return self._pop(held) or self._pop(prepared) or self._pop(any_)

    def _push(self, attempt: Attempt) -> None:
        shard, number = attempt.shard, next(self._numbers)
        preparation = shard.preparation.name if shard.preparation else ""
        for server in dict.fromkeys(("", shard.server)):
            queue = self._queues.setdefault((shard.needs, preparation, server), [])
            heappush(queue, (-attempt.weight, number, attempt))
        self._wanted[shard.needs, preparation] += 1
        self._count(attempt, 1)

    def _peek(self, keys: list[Key]) -> Attempt | None:
        found = self._first(keys)
        return found[1][2] if found else None

    def _pop(self, keys: list[Key]) -> Attempt | None:
        found = self._first(keys)
        if found is None:
            return None
        key, (_, number, attempt) = found
        heappop(self._queues[key])
        if attempt.shard.server:  # it stands in a second queue
            self._taken.add(number)
        self._wanted[key[:2]] -= 1
        self._count(attempt, -1)
        return attempt

    def _first(self, keys: list[Key]) -> tuple[Key, tuple[float, int, Attempt]] | None:
        """The heaviest shard of these queues that has not been taken from its other one."""
        heads = ((self._heads(key), key) for key in keys)
        best = min(((head[:2], key, head) for head, key in heads if head), default=None, key=lambda e: e[0])
        return (best[1], best[2]) if best else None

    def _heads(self, key: Key) -> tuple[float, int, Attempt] | None:
        queue = self._queues.get(key)
        while queue and queue[0][1] in self._taken:
            self._taken.discard(heappop(queue)[1])
        if queue:
            return queue[0]
        self._queues.pop(key, None)
        return None

    def _count(self, attempt: Attempt, sign: int) -> None:
        self.pending += sign
        self._pending_weight = max(0.0, self._pending_weight + sign * attempt.weight)


def may_run(node: NodeState, shard: Shard[Any]) -> bool:
    """Whether a node has not refused what a shard needs prepared."""
    return shard.preparation is None or shard.preparation.name not in node.refused


def slots_of(nodes: list[NodeState], shards: list[Shard[Any]]) -> int:
    """About how many of these shards run at a time."""
    return sum(max((_times(node, needs) for needs in {s.needs for s in shards}), default=0) for node in nodes)


def _times(node: NodeState, needs: Needs) -> int:
    parts: Iterator[float] = (
        have / need
        for have, need in (
            (node.free.cpus, needs.cpus),
            (node.free.memory_gib, needs.memory_gib),
            (node.free.gpus, needs.gpus),
        )
        if need
    )
    return int(min(parts, default=0.0))
