"""The clients of a load on the nodes of a cluster; each holds its share, and sends the turns to this process.

A client sends the turns of a conversation when it has ended. A conversation that is lost with its node is
therefore not counted, and is held again on another node.
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
from vllm_harness.extras.load.client import ClientState, LoadClient
from vllm_harness.extras.load.conversations import ClientJob, Listener, LoadTurn
from vllm_harness.extras.load.health import ProcessSample
from vllm_harness.extras.load.plan import shares_of
from vllm_harness.extras.load.tally import problem_kinds

EVERY_S = 0.5
"""The interval between two reports of a client."""
ConversationFindings = tuple[int, Transport, list[Finding]]


@dataclass(frozen=True)
class ClientOrder:
    """How a client starts, or restarts on another node.

    Attributes:
        done: the conversations in its share that have ended, and are not held again.
        since_s: how many seconds ago the load started.
    """

    done: frozenset[int]
    since_s: float


@dataclass
class ClientReport:
    """The results of a client since its last report.

    Attributes:
        state: the client's progress.
        samples: measurements of its process's memory and handles.
        turns: the turns of the conversations that have ended.
        findings: the findings between the turns of each of these conversations.
        ended: the numbers of these conversations.
    """

    state: ClientState
    samples: list[ProcessSample] = field(default_factory=list)
    turns: list[LoadTurn] = field(default_factory=list)
    findings: list[ConversationFindings] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)


class NodeClient:
    """Holds a share of a load on a node; see `extras.cluster.together.Member`."""

    def __init__(self, job: ClientJob) -> None:
        self._job = job
        self._stop = asyncio.Event()
        self._seen: set[str] = set()
        self._turns: dict[int, list[LoadTurn]] = {}
        self._findings: dict[int, ConversationFindings] = {}
        self._ended: list[int] = []
        self._sampled = 0

    async def ready(self) -> None:
        """Checks that the server can be reached from this node. Raises EndpointError if not."""
        try:
            await asyncio.to_thread(self._job.endpoint.models)
        except EndpointError as error:
            raise EndpointError(
                f"from the node {socket.gethostname()}: {error.message}",
                hint="give an address of the server that every node can reach",
            ) from None

    async def work(self, order: ClientOrder) -> AsyncIterator[ClientReport]:
        """Holds the conversations, and yields a report every half second."""
        listener = Listener(self._add_turn, self._add_findings, self._ended.append)
        client = LoadClient(self._job, listener, order.done, order.since_s)
        running = asyncio.create_task(client.run(self._stop))
        while not running.done():
            await asyncio.wait((running,), timeout=EVERY_S)
            yield self._report(client, self._ended)
        await running
        yield self._report(client, list(self._turns))  # including conversations that were cancelled

    def stop(self) -> None:
        """Cancels the open conversations."""
        self._stop.set()

    def _add_turn(self, load_turn: LoadTurn) -> None:
        self._turns.setdefault(load_turn.conversation, []).append(self._without_bytes(load_turn))

    def _add_findings(self, conversation: int, transport: Transport, findings: list[Finding]) -> None:
        self._findings[conversation] = (conversation, transport, findings)

    def _without_bytes(self, load_turn: LoadTurn) -> LoadTurn:
        """A turn without its request and answer, unless it is this client's first with a kind of problem."""
        lean = replace(load_turn, result=replace(load_turn.result, exchange=None))
        kinds = problem_kinds(load_turn) - self._seen
        self._seen |= kinds
        if lean.stream is None or kinds:
            return lean
        exchange = replace(lean.stream.exchange, request={}, body=None, events=None, chunks=())
        return replace(lean, stream=replace(lean.stream, exchange=exchange))

    def _report(self, client: LoadClient, conversations: Sequence[int]) -> ClientReport:
        sampled, self._sampled = self._sampled, len(client.samples)
        numbers = list(conversations)
        ended, self._ended[:] = list(self._ended), []
        return ClientReport(
            replace(client.state, open=set(client.state.open)),
            client.samples[sampled:],
            [load_turn for number in numbers for load_turn in self._turns.pop(number, ())],
            [self._findings.pop(number) for number in numbers if number in self._findings],
            ended,
        )


@dataclass
class ClientProgress:
    """The reports of a client so far, from all nodes that it ran on.

    Attributes:
        nodes: the nodes that it ran on, in order.
        state: its progress on its current node.
        before: its progress on nodes that were lost, which counts only conversations that ended there.
        done: the conversations that have ended.
    """

    nodes: list[str] = field(default_factory=list)
    state: ClientState = field(default_factory=ClientState)
    before: ClientState = field(default_factory=ClientState)
    done: set[int] = field(default_factory=set)

    @property
    def whole(self) -> ClientState:
        """The client's progress over all nodes; a conversation that started twice counts once."""
        state, before = self.state, self.before
        return replace(
            state,
            started=before.started + state.started,
            late_s=max(before.late_s, state.late_s),
            cpu_s=before.cpu_s + state.cpu_s,
            sent_again=before.sent_again + state.sent_again,
        )


class ClusterClients:
    """Clients on the nodes of a cluster; see `Clients`.

    Args:
        cluster: the cluster whose nodes run the clients.
        clients: the number of clients; by default one for each node.

    Attributes:
        progress: the progress of each client.
        lost_with: the lost node of each lost conversation, by the conversation's number.
    """

    def __init__(self, cluster: RayCluster, clients: int | None = None) -> None:
        self._cluster, self._clients = cluster, clients
        self._listener: Listener | None = None
        self._started = 0.0
        self._samples: dict[str, list[ProcessSample]] = {}
        self.progress: list[ClientProgress] = []
        self.lost_with: dict[int, str] = {}
        self._together: Together | None = None

    @property
    def states(self) -> Sequence[ClientState]:
        """See `Clients`."""
        return [client.whole for client in self.progress]

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
        """The number of conversations that were lost with a node, and completed on another node."""
        return sum(number in client.done for number in self.lost_with for client in self.progress)

    async def run(self, job: ClientJob, listener: Listener, stop: asyncio.Event) -> None:
        """See `Clients`."""
        number = self._clients or len(self._cluster.nodes())
        shares = shares_of(job.plan, len(job.scenario.turns), number)
        self._listener, self.progress = listener, [ClientProgress() for _ in shares]
        makes = [partial(NodeClient, replace(job, share=share)) for share in shares]
        self._together = Together(self._cluster, makes, self, "client")
        await self._together.run(stop)

    def begins(self) -> None:
        """Starts the load's clock when all clients are up; see `extras.cluster.together.MemberListener`."""
        self._started = time.perf_counter()

    def order(self, number: int) -> ClientOrder:
        """How a client starts; see `MemberListener`."""
        return ClientOrder(frozenset(self.progress[number].done), self.elapsed_s)

    def came(self, number: int, node: str, report: ClientReport) -> None:
        """Adds a client's report; see `MemberListener`."""
        progress = self.progress[number]
        assert self._listener is not None
        if not progress.nodes or progress.nodes[-1] != node:
            progress.nodes.append(node)
        progress.state = report.state
        progress.done.update(report.ended)
        self._samples.setdefault(f"client {number + 1} on {node}", []).extend(report.samples)
        for load_turn in report.turns:
            self._listener.on_turn(replace(load_turn, node=node))
        for conversation, transport, findings in report.findings:
            self._listener.on_findings(conversation, transport, findings)

    def lost(self, number: int, node: str) -> None:
        """Records the conversations that were open on a lost node; see `MemberListener`."""
        progress = self.progress[number]
        self.lost_with |= dict.fromkeys(progress.state.open, node)
        progress.before = replace(progress.whole, started=len(progress.done), open=set())
        progress.state = ClientState()

    def as_json(self) -> Json:
        """See `Clients`."""
        clients = [
            {
                "nodes": client.nodes,
                "conversations": client.whole.started,
                "cpu_s": round(client.whole.cpu_s, 3),
            }
            for client in self.progress
        ]
        return {
            "clients": clients,
            "lost": len(self.lost_with),
            "held_again": self.held_again,
            "not_held": [error.message for error in self.errors],
        }
