"""A load whose clients are on the nodes of a cluster: each holds its part, and its turns stream here.

A conversation comes as a whole once it has ended, so one that is lost with its node leaves no trace in the
figures, and is held once more on another node.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from vllm_harness._errors import HarnessError
from vllm_harness._exchange.endpoint import EndpointError
from vllm_harness._protocol import Finding
from vllm_harness._protocol.core.events import Json
from vllm_harness._scenarios.transports import Transport
from vllm_harness.extras.cluster.ray_cluster import RayCluster
from vllm_harness.extras.cluster.together import Together
from vllm_harness.extras.load.client import ClientJob, ClientState, Listener, LoadClient
from vllm_harness.extras.load.conversations import LoadTurn
from vllm_harness.extras.load.health import ProcessSample
from vllm_harness.extras.load.plan import LoadShare, parts_of
from vllm_harness.extras.load.tally import problems_of

EVERY_S = 0.5
"""How often a client tells what has come."""
Between = tuple[int, Transport, list[Finding]]


@dataclass(frozen=True)
class ClientOrder:
    """What a client is to do.

    Attributes:
        done: conversations of its part that are not held again.
        since_s: how many seconds ago the load began.
    """

    done: frozenset[int]
    since_s: float


@dataclass
class ClientReport:
    """What a client tells.

    Attributes:
        state: how far it is.
        samples: memory and handles of its process, since the batch before.
        turns: of the conversations that have ended.
        between: what is wrong between the turns of each.
        ended: their numbers.
    """

    state: ClientState
    samples: list[ProcessSample] = field(default_factory=list)
    turns: list[LoadTurn] = field(default_factory=list)
    between: list[Between] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)


class NodeClient:
    """Holds a part of a load on a node; see `executors.together.Member`."""

    def __init__(self, held: ClientJob) -> None:
        self._held = held
        self._stop = asyncio.Event()
        self._seen: set[str] = set()
        self._turns: dict[int, list[LoadTurn]] = {}
        self._between: dict[int, Between] = {}
        self._ended: list[int] = []
        self._told = 0

    async def ready(self) -> None:
        """Looks whether the server answers from here. Raises EndpointError."""
        try:
            await asyncio.to_thread(self._held.served.endpoint.models)
        except EndpointError as error:
            raise EndpointError(
                f"from the node {socket.gethostname()}: {error.message}",
                hint="name an address of the server that every node reaches",
            ) from None

    async def work(self, order: ClientOrder) -> AsyncIterator[ClientReport]:
        """Holds the conversations; yields what has come every half a second."""
        listener = Listener(self._taken, self._note_between, self._ended.append)
        holding = LoadClient(self._held, listener, order.done, order.since_s)
        running = asyncio.create_task(holding.run(self._stop))
        while not running.done():
            await asyncio.wait((running,), timeout=EVERY_S)
            yield self._batch(holding, self._ended)
        await running
        yield self._batch(holding, list(self._turns))  # also of those that were cut off

    def stop(self) -> None:
        """Cuts off what runs."""
        self._stop.set()

    def _taken(self, taken: LoadTurn) -> None:
        self._turns.setdefault(taken.conversation, []).append(self._lean(taken))

    def _note_between(self, conversation: int, transport: Transport, findings: list[Finding]) -> None:
        self._between[conversation] = (conversation, transport, findings)

    def _lean(self, taken: LoadTurn) -> LoadTurn:
        """A turn without its bytes, unless it has a problem of a kind that none before had here."""
        kinds = {f"{taken.transport.name} {kind}" for kind in problems_of(taken.result)} - self._seen
        self._seen |= kinds
        if taken.heard is None or kinds:
            return replace(taken, result=replace(taken.result, exchange=None))
        exchange = replace(taken.heard.exchange, request={}, body=None, events=None, chunks=())
        heard = replace(taken.heard, exchange=exchange)
        return replace(taken, heard=heard, result=replace(taken.result, exchange=None))

    def _batch(self, holding: LoadClient, conversations: Sequence[int]) -> ClientReport:
        told, self._told = self._told, len(holding.samples)
        numbers = list(conversations)
        ended, self._ended[:] = list(self._ended), []
        return ClientReport(
            replace(holding.state, open=set(holding.state.open)),
            holding.samples[told:],
            [taken for number in numbers for taken in self._turns.pop(number, ())],
            [self._between.pop(number) for number in numbers if number in self._between],
            ended,
        )


@dataclass
class ClientProgress:
    """What a client of the driver's has told so far, over all its nodes.

    Attributes:
        part: that it holds.
        nodes: where it ran, the last one at the end.
        state: how far it is, where it runs now.
        before: how far it was on nodes that were lost; of the conversations begun there, those that ended.
        done: conversations that have ended.
    """

    part: LoadShare
    nodes: list[str] = field(default_factory=list)
    state: ClientState = field(default_factory=ClientState)
    before: ClientState = field(default_factory=ClientState)
    done: set[int] = field(default_factory=set)

    @property
    def whole(self) -> ClientState:
        """How far it is over all its nodes; a conversation that began twice counts once."""
        state, before = self.state, self.before
        return replace(
            state,
            begun=before.begun + state.begun,
            late_s=max(before.late_s, state.late_s),
            cpu_s=before.cpu_s + state.cpu_s,
        )


class ClusterClients:
    """Clients on the nodes of a cluster; see `Clients`.

    Args:
        cluster: whose nodes.
        clients: how many; by default one for each node.

    Attributes:
        told: what each has told.
        lost_with: conversations that were lost with a node, and the node.
    """

    def __init__(self, cluster: RayCluster, clients: int | None = None) -> None:
        self._cluster, self._clients = cluster, clients
        self._listener: Listener | None = None
        self._started = 0.0
        self._samples: dict[str, list[ProcessSample]] = {}
        self.told: list[ClientProgress] = []
        self.lost_with: dict[int, str] = {}
        self._together: Together | None = None

    @property
    def states(self) -> Sequence[ClientState]:
        """See `Clients`."""
        return [each.whole for each in self.told]

    @property
    def samples(self) -> dict[str, list[ProcessSample]]:
        """See `Clients`."""
        return dict(self._samples)

    @property
    def elapsed_s(self) -> float:
        """See `Clients`."""
        return time.perf_counter() - self._started if self._started else 0.0

    @property
    def errors(self) -> Sequence[HarnessError]:
        """See `Clients`."""
        return self._together.errors if self._together else ()

    @property
    def held_again(self) -> int:
        """Conversations that were lost with a node, and held on another one to their end."""
        return sum(number in each.done for number in self.lost_with for each in self.told)

    async def hold(self, held: ClientJob, listener: Listener, stop: asyncio.Event) -> None:
        """See `Clients`."""
        number = self._clients or len(self._cluster.nodes())
        parts = parts_of(held.plan, len(held.scenario.turns), number)
        self._listener, self.told = listener, [ClientProgress(part) for part in parts]
        makes = [partial(NodeClient, replace(held, part=part)) for part in parts]
        self._together = Together(self._cluster, makes, self, "client")
        await self._together.run(stop)

    def begins(self) -> None:
        """The clients are up: the load begins."""
        self._started = time.perf_counter()

    def order(self, number: int) -> ClientOrder:
        """What a client is to do; see `executors.together.Hearer`."""
        return ClientOrder(frozenset(self.told[number].done), self.elapsed_s)

    def came(self, number: int, node: str, batch: ClientReport) -> None:
        """Counts and keeps what a client tells."""
        told = self.told[number]
        assert self._listener is not None
        if not told.nodes or told.nodes[-1] != node:
            told.nodes.append(node)
        told.state = batch.state
        told.done.update(batch.ended)
        self._samples.setdefault(f"client {number + 1} on {node}", []).extend(batch.samples)
        for taken in batch.turns:
            self._listener.taken(replace(taken, node=node))
        for conversation, transport, findings in batch.between:
            self._listener.between(conversation, transport, findings)

    def lost(self, number: int, node: str) -> None:
        """Notes what was open on a node that is gone."""
        told = self.told[number]
        self.lost_with |= dict.fromkeys(told.state.open, node)
        told.before, told.state = replace(told.whole, begun=len(told.done), open=set()), ClientState()

    def as_json(self) -> Json:
        """See `Clients`."""
        clients = [
            {
                "nodes": each.nodes,
                "conversations": each.whole.begun,
                "cpu_s": round(each.whole.cpu_s, 3),
            }
            for each in self.told
        ]
        return {
            "clients": clients,
            "lost": len(self.lost_with),
            "held_again": self.held_again,
            "not_held": [error.message for error in self.errors],
        }
