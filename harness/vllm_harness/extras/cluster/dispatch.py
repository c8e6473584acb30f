"""Chooses which shard runs next on which node, before the cluster's own scheduler places it.

Heavy shards run first, so that none is left at the end. A node prefers shards whose servers its fork servers
hold, or for which it is prepared. The module only does bookkeeping; it uses neither a clock nor a cluster.
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
"""How many times in a row a shard may start without finishing a cell."""
SERVERS_HELD = 4
"""The assumed number of models that the fork servers of a node hold."""
_URGENT = 0.5
"""A shard with at least this share of the mean remaining work of a slot runs before all others."""


@dataclass
class Attempt:
    """A shard that waits or runs.

    Attributes:
        shard: the shard.
        left: the cells of the shard that have not finished.
        lost: the nodes on which it failed since its last finished cell, each with the reason.
        begun: how many times it was started.
        several: whether it takes GPUs on several nodes.
        taken: node -> the resources that it takes there while it runs.
    """

    shard: Shard[Any]
    left: tuple[str, ...]
    lost: tuple[tuple[str, str], ...] = ()
    begun: int = 0
    several: bool = False
    taken: dict[str, Needs] = field(default_factory=dict)

    @property
    def weight(self) -> float:
        """The estimated duration of the remaining cells."""
        return self.shard.weight * len(self.left) / max(1, len(self.shard.cells))


@dataclass
class NodeState:
    """A node, with its free resources and the preparations made on it.

    Attributes:
        name: Ray's id of the node.
        free: the resources that no running shard takes.
        gpu_type: the type of its GPUs.
        servers: the servers, as shards name them, that were used last and that its fork servers hold.
        prepared: the names of the preparations that succeeded on it.
        refused: the names of the preparations that failed on it.
    """

    name: str
    free: Needs
    gpu_type: str = ""
    servers: deque[str] = field(default_factory=lambda: deque(maxlen=SERVERS_HELD))
    prepared: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def fits(self, needs: Needs) -> bool:
        """Whether the needed resources are free."""
        free = self.free
        if needs.gpu_type and needs.gpu_type != self.gpu_type:
            return False
        return needs.cpus <= free.cpus and needs.memory_gib <= free.memory_gib and needs.gpus <= free.gpus

    def holds(self, server: str) -> None:
        """Notes that its fork servers hold a server from now on."""
        if server and server not in self.servers:
            self.servers.append(server)

    def take(self, needs: Needs, sign: int = 1) -> None:
        """Takes resources, or gives them back if the sign is -1."""
        self.free = Needs(
            round(self.free.cpus - sign * needs.cpus, 6),
            round(self.free.memory_gib - sign * needs.memory_gib, 6),
            self.free.gpus - sign * needs.gpus,
        )


Key = tuple[Needs, str, str]


class Dispatcher:
    """Assigns shards to nodes.

    Args:
        shards: all shards to run.
        slots: the approximate number of shards that run at a time.
    """

    def __init__(self, shards: list[Shard[Any]], slots: int) -> None:
        self._slots = max(1, slots)
        self._numbers = count()
        self._queues: dict[Key, list[tuple[float, int, Attempt]]] = {}
        self._waiting: Counter[tuple[Needs, str]] = Counter()
        self._failed: list[Attempt] = []
        self._assigned: set[int] = set()
        self._pending_weight = 0.0
        self.pending = 0
        for shard in shards:
            self._push(Attempt(shard, shard.cells))

    def give_back(self, attempt: Attempt) -> None:
        """Queues the rest of a shard again, if possible for a node on which it has not failed."""
        if attempt.lost:
            self._failed.append(attempt)
            self._count(attempt, 1)
        else:
            self._push(attempt)

    def next_for(self, node: NodeState, others: bool = True, gpus: bool = True) -> Attempt | None:
        """Removes and returns the shard to run next on a node; None if none fits.

        Args:
            node: the node, with its free resources.
            others: whether there are other nodes, which shards that failed on this node can wait for.
            gpus: whether the shard may take GPUs.
        """
        return self._failed_elsewhere(node, others, gpus) or self._queued(node, gpus)

    def take_unrunnable(self, nodes: list[NodeState]) -> list[Attempt]:
        """Removes and returns the shards that fit on none of the nodes, even with all resources free."""
        unrunnable = []
        for needs, preparation in [kind for kind, number in self._waiting.items() if number]:
            if any(node.fits(needs) and preparation not in node.refused for node in nodes):
                continue
            while attempt := self._pop([(needs, preparation, "")]):
                unrunnable.append(attempt)
        for attempt in list(self._failed):
            if not any(may_run(node, attempt.shard) and node.fits(attempt.shard.needs) for node in nodes):
                self._failed.remove(attempt)
                self._count(attempt, -1)
                unrunnable.append(attempt)
        return unrunnable

    def _failed_elsewhere(self, node: NodeState, others: bool, gpus: bool) -> Attempt | None:
        for number, attempt in enumerate(self._failed):
            if attempt.shard.needs.gpus and not gpus:
                continue
            failed_here = others and any(node.name == name for name, _ in attempt.lost)
            if not failed_here and may_run(node, attempt.shard) and node.fits(attempt.shard.needs):
                self._count(attempt, -1)
                return self._failed.pop(number)
        return None

    def _queued(self, node: NodeState, gpus: bool) -> Attempt | None:
        fitting = [
            (needs, preparation)
            for (needs, preparation), number in self._waiting.items()
            if number and preparation not in node.refused and node.fits(needs) and (gpus or not needs.gpus)
        ]
        any_: list[Key] = [(*kind, "") for kind in fitting]
        heaviest = self._peek(any_)
        if heaviest is None:
            return None
        if heaviest.weight >= _URGENT * self._pending_weight / self._slots:
            return self._pop(any_)
        held: list[Key] = [(*kind, server) for kind in fitting for server in node.servers]
        prepared: list[Key] = [key for key in any_ if key[1] in node.prepared]
        return self._pop(held) or self._pop(prepared) or self._pop(any_)

    def _push(self, attempt: Attempt) -> None:
        shard, number = attempt.shard, next(self._numbers)
        preparation = shard.preparation.name if shard.preparation else ""
        for server in dict.fromkeys(("", shard.server)):
            queue = self._queues.setdefault((shard.needs, preparation, server), [])
            heappush(queue, (-attempt.weight, number, attempt))
        self._waiting[shard.needs, preparation] += 1
        self._count(attempt, 1)

    def _peek(self, keys: list[Key]) -> Attempt | None:
        first = self._first(keys)
        return first[1][2] if first else None

    def _pop(self, keys: list[Key]) -> Attempt | None:
        first = self._first(keys)
        if first is None:
            return None
        key, (_, number, attempt) = first
        heappop(self._queues[key])
        if attempt.shard.server:  # it is also in a second queue
            self._assigned.add(number)
        self._waiting[key[:2]] -= 1
        self._count(attempt, -1)
        return attempt

    def _first(self, keys: list[Key]) -> tuple[Key, tuple[float, int, Attempt]] | None:
        """The heaviest waiting shard of these queues, with its queue."""
        heads = [(key, head) for key in keys if (head := self._head(key))]
        return min(heads, default=None, key=lambda pair: pair[1][:2])

    def _head(self, key: Key) -> tuple[float, int, Attempt] | None:
        queue = self._queues.get(key)
        while queue and queue[0][1] in self._assigned:  # through the shard's other queue
            self._assigned.discard(heappop(queue)[1])
        if queue:
            return queue[0]
        self._queues.pop(key, None)
        return None

    def _count(self, attempt: Attempt, sign: int) -> None:
        self.pending += sign
        self._pending_weight = max(0.0, self._pending_weight + sign * attempt.weight)


def may_run(node: NodeState, shard: Shard[Any]) -> bool:
    """Whether the preparation of a shard has not failed on a node."""
    return shard.preparation is None or shard.preparation.name not in node.refused


def slots_of(nodes: list[NodeState], shards: list[Shard[Any]]) -> int:
    """About how many of these shards can run at a time."""
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
