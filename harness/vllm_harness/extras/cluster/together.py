"""Members that work at the same time on nodes of a Ray cluster, each in its own process, and tell what comes.

A shard waits until its node has room; members are all up before the first of them begins. One that is lost
with its node is begun again on another one, with an order that leaves out what it had done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from vllm_harness._errors import HarnessError
from vllm_harness.extras.cluster.dispatch import ATTEMPTS
from vllm_harness.extras.cluster.ray_cluster import ClusterError, NotRun, RayCluster, what_happened

START_S = 900.0
"""How long a member may wait for a CPU of a node, and for what is shipped to be installed there."""
SILENT_S = 60.0
"""Members tell something every second or so; one that is silent for so long is lost."""
END_S = 20.0
"""How long members may take to end in order."""


class Member(Protocol):
    """What works on a node."""

    async def ready(self) -> None:
        """Looks whether it can work. A HarnessError ends the whole."""

    def work(self, order: Any) -> AsyncIterator[Any]:
        """Does what it is told; yields what comes of it, and something at least every second."""

    def stop(self) -> None:
        """Has it end in order, and soon."""


class MemberListener(Protocol):
    """Who has members work."""

    def begins(self) -> None:
        """All members are up."""

    def order(self, number: int) -> Any:
        """What a member is to do; asked again where it has to begin anew."""

    def came(self, number: int, node: str, item: Any) -> None:
        """Receives what a member tells, and the name of its node."""

    def lost(self, number: int, node: str) -> None:
        """A member is lost; what it has told stays."""


@dataclass
class _Up:
    """A member that is up."""

    actor: Any
    node: str


class _Hosted:
    """A member in its process."""

    def __init__(self, make: Callable[[], Member]) -> None:
        self._member = make()

    async def ready(self) -> str:
        """The node that it is on."""
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
        cluster: on whose nodes.
        make: makes each member, in its process; arrives there by pickle.
        listener: receives what they tell.
        what: a member is called.
        errors: of members that were given up.
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
        """Runs them to their end; where `stop` is set, they end in order.

        Raises:
            ClusterError: a member cannot be begun.
            HarnessError: what a member raises.
        """
        stopping = asyncio.create_task(self._stop(stop))
        try:
            await asyncio.gather(*map(self._begin, range(len(self.make))))
            if not self._stopping:
                self._working = True
                self.listener.begins()
                await asyncio.gather(*map(self._work, range(len(self.make))))
        finally:
            self._stopping = True
            stopping.cancel()
            for number in list(self._up):
                self._end(number)

    async def _begin(self, number: int, avoid: tuple[str, ...] = ()) -> None:
        """Has a member come up, on another node than these if there is one."""
        why = ""
        for _ in range(ATTEMPTS):
            node = self._choose(avoid)
            try:
                async with asyncio.timeout(START_S):
                    await self._begin_on(number, node)
                return
            except TimeoutError:
                why = f"it was not ready within {START_S:.0f} s"
            except self.cluster.ray.exceptions.RayTaskError as error:
                raise _cause(error) from None
            except self.cluster.ray.exceptions.RayError as error:
                why = what_happened(error)
            self._end(number)
            if self._stopping:
                return
            avoid = (*avoid, node)
        raise ClusterError(
            f"{self.what} {number + 1} of {len(self.make)} did not come up: {why}",
            hint="each takes a CPU of a node: give the cluster more, or ask for fewer",
        )

    async def _begin_on(self, number: int, node: str) -> None:
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": self.cluster.on(node)}
        actor = self.cluster.ray.remote(_Hosted).options(**options, **self.cluster.options)
        actor = actor.remote(self.make[number])
        self._up[number] = _Up(actor, node)
        self._up[number].node = await actor.ready.remote()

    def _choose(self, avoid: Sequence[str]) -> str:
        """The node with the fewest members, of those that are not to be avoided if there are any."""
        held = [up.node for up in self._up.values()]
        nodes = sorted(
            (node.name in avoid, held.count(node.name), node.name) for node in self.cluster.nodes()
        )
        if not nodes:
            raise ClusterError("the cluster has no node any more", hint="start Ray on its machines")
        return nodes[0][2]

    async def _work(self, number: int) -> None:
        lost: list[tuple[str, str]] = []
        while True:
            up = self._up[number]
            try:
                await self._hear(number, up)
                return
            except TimeoutError:
                why = f"it was silent for {SILENT_S:.0f} s"
            except self.cluster.ray.exceptions.RayTaskError as error:
                raise _cause(error) from None
            except self.cluster.ray.exceptions.RayError as error:
                why = what_happened(error)
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
                f"{self.what} {number + 1} was lost on {name}, and begins again elsewhere: {why}"
            )
            await self._begin(number, tuple(node for node, _ in lost))
            if self._stopping:
                return

    async def _hear(self, number: int, up: _Up) -> None:
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
                hint="look after these nodes, and run the same command again",
            )
        )

    async def _stop(self, stop: asyncio.Event) -> None:
        """Ends members in order once they are to, and then those that did not."""
        await stop.wait()
        self._stopping = True
        for up in self._up.values():
            up.actor.stop.remote()
        await asyncio.sleep(END_S if self._working else 0)
        for number in list(self._up):
            self._end(number)

    def _end(self, number: int) -> None:
        if up := self._up.pop(number, None):
            with suppress(Exception):  # of a process that is gone
                self.cluster.ray.kill(up.actor)


def _cause(error: Any) -> Exception:
    return error.cause if isinstance(error.cause, Exception) else error
