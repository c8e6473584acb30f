"""Runs workers ("members") at the same time on nodes of a Ray cluster, and receives their results.

Unlike shards, which wait for free resources, all members are up before the first of them starts to work. If a
member is lost with its node, it starts again on another node, with an order that leaves out finished work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from vllm_harness._errors import HarnessError
from vllm_harness.extras.cluster.dispatch import ATTEMPTS
from vllm_harness.extras.cluster.ray_cluster import ClusterError, NotRun, RayCluster, what_happened

START_S = 900.0
"""How many seconds a member may wait for a CPU of a node and for the installation of the harness there."""
SILENT_S = 60.0
"""Members send an item about every second; a member that is silent for this many seconds is lost."""
END_S = 20.0
"""How many seconds members may take to stop by themselves."""


class Member(Protocol):
    """A worker in a process on a node."""

    async def ready(self) -> None:
        """Checks whether the member can work. A HarnessError ends the whole group."""

    def work(self, order: Any) -> AsyncIterator[Any]:
        """Carries out an order; yields results, and at least one item every second."""

    def stop(self) -> None:
        """Asks the member to finish soon."""


class MemberListener(Protocol):
    """Gives members their orders, and receives their results."""

    def begins(self) -> None:
        """Called when all members are up."""

    def order(self, number: int) -> Any:
        """Returns the order for a member; called again if the member has to start again."""

    def came(self, number: int, node: str, item: Any) -> None:
        """Receives an item from a member, with the name of its node."""

    def lost(self, number: int, node: str) -> None:
        """Called when a member is lost; the items that it has sent still count."""


@dataclass
class _Up:
    """A member that is up, and its node."""

    actor: Any
    node: str


class _Hosted:
    """The Ray actor that runs a member in its process."""

    def __init__(self, make: Callable[[], Member]) -> None:
        self._member = make()

    async def ready(self) -> str:
        """Waits until the member is ready; returns its node."""
        import ray

        await self._member.ready()
        return str(ray.get_runtime_context().get_node_id())

    async def work(self, order: Any) -> AsyncIterator[Any]:
        """See `Member.work`."""
        async for item in self._member.work(order):
            yield item

    async def stop(self) -> None:
        """See `Member.stop`."""
        self._member.stop()


@dataclass
class Together:
    """Runs members on a cluster.

    Attributes:
        cluster: the cluster.
        make: for each member, a picklable function that makes the member in its process.
        listener: gives orders and receives results.
        what: the word for a member in messages.
        errors: the errors of members that were given up.
    """

    cluster: RayCluster
    make: Sequence[Callable[[], Member]]
    listener: MemberListener
    what: str = "member"
    errors: list[HarnessError] = field(default_factory=list)
    _up: dict[int, _Up] = field(default_factory=dict)
    _working: bool = False
    _stopping: bool = False

    async def run(self, stop: asyncio.Event) -> None:
        """Runs the members until they finish, or until `stop` is set; then they stop.

        Raises:
            ClusterError: a member cannot start.
            HarnessError: a member raised it.
        """
        stopping = asyncio.create_task(self._stop(stop))
        try:
            await asyncio.gather(*map(self._start, range(len(self.make))))
            if not self._stopping:
                self._working = True
                self.listener.begins()
                await asyncio.gather(*map(self._work, range(len(self.make))))
        finally:
            self._stopping = True
            stopping.cancel()
            for number in list(self._up):
                self._end(number)

    async def _start(self, number: int, avoid: tuple[str, ...] = ()) -> None:
        """Starts a member, if possible on a node that is not in `avoid`."""
        why: str | None = ""
        for _ in range(ATTEMPTS):
            node = self._choose(avoid)
            why = await self._failure(self._start_on(number, node), START_S, "it was not ready within")
            if why is None:
                return
            self._end(number)
            if self._stopping:
                return
            avoid = (*avoid, node)
        raise ClusterError(
            f"{self.what} {number + 1} of {len(self.make)} did not start: {why}",
            hint="each takes a CPU of a node: add CPUs to the cluster, or request fewer",
        )

    async def _failure(self, step: Awaitable[None], limit_s: float | None, late: str) -> str | None:
        """Waits for a step of a member; returns why the member was lost, or None if it was not lost.

        Raises:
            Exception: the member itself raised it.
        """
        try:
            async with asyncio.timeout(limit_s):
                await step
        except TimeoutError:
            return f"{late} {limit_s or SILENT_S:.0f} s"
        except self.cluster.ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except self.cluster.ray.exceptions.RayError as error:
            return what_happened(error)
        return None

    async def _start_on(self, number: int, node: str) -> None:
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": self.cluster.on(node)}
        actor = self.cluster.ray.remote(_Hosted).options(**options, **self.cluster.options)
        actor = actor.remote(self.make[number])
        self._up[number] = _Up(actor, node)
        self._up[number].node = await actor.ready.remote()

    def _choose(self, avoid: Sequence[str]) -> str:
        """The node with the fewest members; a node in `avoid` only if there is no other."""
        held = [up.node for up in self._up.values()]
        nodes = sorted(
            (node.name in avoid, held.count(node.name), node.name) for node in self.cluster.nodes()
        )
        if not nodes:
            raise ClusterError("the cluster has no nodes left", hint="start Ray on its machines")
        return nodes[0][2]

    async def _work(self, number: int) -> None:
        lost: list[tuple[str, str]] = []
        while True:
            up = self._up[number]
            why = await self._failure(self._receive(number, up), None, "it was silent for")
            if why is None:
                return
            name = self.cluster.name_of(up.node)
            self._end(number)
            self.listener.lost(number, name)
            lost.append((up.node, why))
            if self._stopping:
                return
            if len(lost) == ATTEMPTS:
                self._give_up(number, lost)
                return
            self.cluster.say(
                f"{self.what} {number + 1} was lost on {name}, and starts again on another node: {why}"
            )
            await self._start(number, tuple(node for node, _ in lost))
            if self._stopping:
                return

    async def _receive(self, number: int, up: _Up) -> None:
        name = self.cluster.name_of(up.node)
        items = up.actor.work.options(num_returns="streaming").remote(self.listener.order(number))
        while True:
            async with asyncio.timeout(SILENT_S):
                try:
                    item = await (await anext(items))
                except StopAsyncIteration:
                    return
            self.listener.came(number, name, item)

    def _give_up(self, number: int, lost: Sequence[tuple[str, str]]) -> None:
        where = "; ".join(f"on {self.cluster.name_of(node)}: {why}" for node, why in lost)
        self.errors.append(
            NotRun(
                f"{self.what} {number + 1} of {len(self.make)} was lost {len(lost)} times {where}",
                hint="check these nodes, and run the same command again",
            )
        )

    async def _stop(self, stop: asyncio.Event) -> None:
        """Once `stop` is set, asks members to stop, and kills those that are still up after a while."""
        await stop.wait()
        self._stopping = True
        for up in self._up.values():
            up.actor.stop.remote()
        await asyncio.sleep(END_S if self._working else 0)
        for number in list(self._up):
            self._end(number)

    def _end(self, number: int) -> None:
        if up := self._up.pop(number, None):
            with suppress(Exception):  # its process may be gone
                self.cluster.ray.kill(up.actor)
