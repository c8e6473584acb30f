"""A discrete-event simulation of a cluster that uses the harness's dispatcher, without servers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

from vllm_harness._machine.shard import Needs, Shard
from vllm_harness.extras.cluster.dispatch import Attempt, Dispatcher, NodeState, slots_of

SMALL = Needs(1, 1.5)


def nothing(_: Sequence[str]) -> Iterator[tuple[str, None]]:
    """The work of a shard that does nothing."""
    yield from ()


def shards_of(
    cells: int, durations: Sequence[float], seed: int, needs: Needs = SMALL
) -> list[tuple[Shard[None], float]]:
    """Makes random shards of one to eight cells, and their durations, from the given durations of cells.

    A shard's weight is the harness's estimate of its duration, which is wrong by up to a half.
    """
    drawn, made, numbers = random.Random(seed), list[tuple[Shard[None], float]](), count()
    while cells:
        size = min(cells, drawn.randint(1, 8))
        cells -= size
        seconds = sum(drawn.choice(durations) for _ in range(size))
        number = next(numbers)
        shard = Shard(
            f"shard {number}",
            tuple(f"{number}.{cell}" for cell in range(size)),
            nothing,
            needs,
            server=f"server {drawn.randrange(300)}",
            weight=seconds * drawn.uniform(0.5, 1.5),
        )
        made.append((shard, seconds))
    return made


@dataclass
class Simulated:
    """The result of a simulated run.

    Attributes:
        makespan: seconds until the last cell finished.
        cells: the finished cells, in order.
        held: the number of shards that ran on a node whose fork server had already loaded their server.
        most_running: the largest number of shards that ran at the same time.
    """

    makespan: float
    cells: list[str]
    held: int
    most_running: int


def simulate(
    shards: Sequence[tuple[Shard[Any], float]], nodes: Sequence[NodeState], deaths: Sequence[float] = ()
) -> Simulated:
    """Runs shards in virtual time.

    Args:
        shards: the shards, each with its duration.
        nodes: the nodes, with all their resources free.
        deaths: the times at which nodes die, the last node first; their shards start again elsewhere.
    """
    seconds = {shard.name: took for shard, took in shards}
    alive = {node.name: node for node in nodes}
    whole = [shard for shard, _ in shards]
    dispatcher = Dispatcher(whole, slots_of(list(nodes), whole))
    events: list[tuple[float, int, str, Attempt | None]] = []
    numbers, now, found = count(), 0.0, Simulated(0.0, [], 0, 0)
    for at, node in zip(sorted(deaths), reversed(nodes), strict=False):
        heappush(events, (at, next(numbers), node.name, None))

    def place(candidates: Sequence[NodeState]) -> None:
        for node in candidates:
            while attempt := dispatcher.next_for(node, others=len(alive) > 1):
                found.held += attempt.shard.server in node.servers
                node.take(attempt.shard.needs)
                node.holds(attempt.shard.server)
                heappush(events, (now + seconds[attempt.shard.name], next(numbers), node.name, attempt))

    place(list(alive.values()))
    while events:
        found.most_running = max(found.most_running, len(events))
        now, _, name, attempt = heappop(events)
        node = alive.get(name)
        if attempt is None:
            alive.pop(name, None)
        elif node is None:
            attempt.lost = (*attempt.lost, (name, "the node is gone"))
            dispatcher.give_back(attempt)
            place(list(alive.values()))
        else:
            node.take(attempt.shard.needs, -1)
            found.cells += attempt.left
            found.makespan = now
            place([node])
    return found


def lower_bound(shards: Sequence[tuple[Shard[Any], float]], slots: int) -> float:
    """A lower bound for the makespan of any schedule: all work divided by the slots, or the longest shard."""
    return max(sum(took for _, took in shards) / slots, max(took for _, took in shards))
