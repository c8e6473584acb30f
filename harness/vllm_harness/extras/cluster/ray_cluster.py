"""Runs shards on the nodes of a Ray cluster.

The harness chooses a node for each shard (`dispatch`), and requests the shard's resources from Ray there. If
they are not free, Ray finds another node. A shard that is lost with its node runs again on another one.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from operator import not_
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from vllm_harness._errors import HarnessError
from vllm_harness._machine.shard import Needs, Preparation, R, Say, Shard
from vllm_harness.extras.cluster.dispatch import ATTEMPTS, Attempt, Dispatcher, NodeState, may_run, slots_of
from vllm_harness.extras.cluster.node_setup import NodeSetup, SetupPlan
from vllm_harness.extras.cluster.on_node import Failed, Finished, Line, Started, prepare, run_shard
from vllm_harness.extras.cluster.places import Placement
from vllm_harness.extras.cluster.spread import ShardSpread, needs_several, on_host, spread

NODES_EVERY_S = 5.0
_WAIT_S = 1.0
_START_S = 1800.0
"""How many seconds a shard may wait for resources and a worker, or a preparation may take for a step."""
_END_S = 20.0
"""How many seconds a cancelled shard may take to end its servers, before its worker is killed with them."""
SHARES_A_SLOT = 4
GIB = 2**30


class ClusterError(HarnessError):
    """The cluster cannot be reached or set up, or none of its nodes can run a shard."""


class NotRun(HarnessError):
    """Cells did not run because their machines failed; this says nothing about vLLM."""


@dataclass
class _Running:
    """A running Ray task: a shard, or a preparation of a node."""

    node: NodeState
    attempt: Attempt | None = None
    preparation: str = ""
    last: float = field(default_factory=monotonic)
    is_started: bool = False
    is_cancelled: bool = False


@dataclass
class RayCluster:
    """The executor that runs shards on a cluster.

    Attributes:
        ray: the `ray` module, connected to the cluster; see `connected`.
        say: prints a line about a preparation, a fault or a restarted shard.
        on_placement: called with each finished cell.
        silence_timeout_s: how many seconds a shard may be silent before it counts as hanging.
        setup_plan: how to set up a node before it runs anything; None if the runtime environment suffices.
    """

    ray: Any
    say: Say
    on_placement: Callable[[Placement], None] = lambda _: None
    silence_timeout_s: float = 1800.0
    setup_plan: SetupPlan | None = None
    _names: dict[str, str] = field(default_factory=dict)
    _node_setup: NodeSetup | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.setup_plan:
            on = partial(self.on, elsewhere=False)
            self._node_setup = NodeSetup(self.ray, self.setup_plan, self.say, self.name_of, on, what_happened)

    def await_setup(self) -> None:
        """Waits until each present node is set up or left out.

        Raises:
            ClusterError: no node could be set up.
        """
        setup = self._node_setup
        if setup is None:
            return
        while not self.nodes() or setup.in_progress:
            if not setup.in_progress:
                why = "; ".join(f"{self.name_of(node)}: {why}" for node, why in setup.left_out.items())
                raise ClusterError(f"no node of the cluster could be set up: {why or 'it has no nodes'}")
            sleep(_WAIT_S)

    def deal(self, cells: int, *, apart: bool) -> int:
        """How many shards to make: one per cell if cells share nothing (`apart`), otherwise a few per CPU."""
        cpus = sum(int(node.free.cpus) for node in self.nodes())
        return cells if apart else max(1, min(cells, SHARES_A_SLOT * cpus))

    def run(self, shards: Sequence[Shard[R]], done: Callable[[R], None]) -> list[HarnessError]:
        """Runs shards on the nodes; see `Executor`.

        Raises:
            ClusterError: no node has what a shard needs.
        """
        return _Run(self, list(shards), done).run() if shards else []

    def nodes(self) -> list[NodeState]:
        """The nodes that are alive and set up, with all their resources."""
        states = [_state(node) for node in self.ray.nodes() if node["Alive"]]
        if not self._node_setup:
            return states
        ready = self._node_setup.ready([state.name for state in states if state.free.cpus])
        return [state for state in states if state.name in ready]

    @property
    def address_here(self) -> str:
        """The address at which the other nodes reach this machine."""
        return str(self.ray.util.get_node_ip_address())

    @property
    def options(self) -> dict[str, Any]:
        """Ray's options for tasks and actors that run the harness."""
        return {"runtime_env": dict(self.setup_plan.runtime_env)} if self.setup_plan else {}

    def on(self, node: str, *, elsewhere: bool = True, spills: bool = False) -> Any:
        """Ray's scheduling strategy for a node.

        Args:
            node: Ray's id of the node.
            elsewhere: whether another node may be used if this one is gone; ignored if nodes need a setup.
            spills: whether another node may also be used if this one is busy.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        soft = elsewhere and self.setup_plan is None
        return NodeAffinitySchedulingStrategy(node, soft=soft, _spill_on_unavailable=soft and spills)

    def name_of(self, node: str) -> str:
        """The name of a node: its address and the start of its id, as `ray list nodes` shows them."""
        if node not in self._names:
            addresses = {info["NodeID"]: info["NodeManagerAddress"] for info in self.ray.nodes()}
            self._names[node] = f"{addresses.get(node, 'unknown')}/{node[:8]}"
        return self._names[node]


def _state(node: dict[str, Any]) -> NodeState:
    resources = node["Resources"]
    kinds = [
        name.removeprefix("accelerator_type:") for name in resources if name.startswith("accelerator_type:")
    ]
    free = Needs(resources.get("CPU", 0.0), resources.get("memory", 0.0) / GIB, int(resources.get("GPU", 0)))
    return NodeState(node["NodeID"], free, kinds[0] if kinds else "")


class _Run:
    """One run of shards on a cluster."""

    def __init__(self, cluster: RayCluster, shards: list[Shard[Any]], done: Callable[[Any], None]) -> None:
        self._cluster, self._ray, self._done = cluster, cluster.ray, done
        self._nodes = {node.name: node for node in cluster.nodes()}
        whole = list(self._nodes.values())
        several = [s.over_nodes is not None and needs_several(s.needs, whole) for s in shards]
        self._several = deque(Attempt(s, s.cells, several=True) for s in compress(shards, several))
        on_one = list(compress(shards, map(not_, several)))
        self._dispatcher = Dispatcher(on_one, slots_of(whole, on_one))
        self._running: dict[Any, _Running] = {}
        self._unprepared: dict[tuple[str, str], list[Attempt]] = {}
        self._errors: list[HarnessError] = []
        self._started = self._checked = monotonic()
        options = {"max_retries": 0, "num_returns": "streaming", **cluster.options}
        self._shard = self._ray.remote(**options)(run_shard)
        self._prepare = self._ray.remote(num_cpus=0, **options)(prepare)

    def run(self) -> list[HarnessError]:
        self._refuse_unrunnable()
        try:
            while self._dispatcher.pending or self._several or self._running:
                self._assign()
                self._receive()
                self._check()
        except BaseException:
            self._end_all()
            raise
        return self._errors

    def _assign(self) -> None:
        while self._several and (over := self._over(self._several[0], self._nodes.values())):
            self._start(self._several.popleft(), over)
        for node in list(self._nodes.values()):
            # GPUs are left to a shard that waits for GPUs on several nodes
            may = {"others": len(self._nodes) > 1, "gpus": not self._several}
            while attempt := self._dispatcher.next_for(node, **may):
                self._start(attempt, ShardSpread(node.name, {node.name: attempt.shard.needs}))

    def _over(self, attempt: Attempt, nodes: Iterable[NodeState]) -> ShardSpread | None:
        return spread(attempt.shard.needs, [node for node in nodes if may_run(node, attempt.shard)])

    def _start(self, attempt: Attempt, where: ShardSpread) -> None:
        attempt.taken = dict(where.takes)
        for name, needs in attempt.taken.items():
            self._nodes[name].take(needs)
        node, preparation = self._nodes[where.host], attempt.shard.preparation
        if preparation is None or preparation.name in node.prepared:
            self._submit(attempt, node)
        else:
            self._await_preparation(attempt, node, preparation)

    def _release(self, attempt: Attempt) -> None:
        """Gives back the resources that a shard has taken, on the nodes that still exist."""
        for name, needs in attempt.taken.items():
            if node := self._nodes.get(name):
                node.take(needs, -1)
        attempt.taken = {}

    def _give_back(self, attempt: Attempt) -> None:
        """Queues the rest of a shard again."""
        if attempt.several:
            self._several.append(attempt)
        else:
            self._dispatcher.give_back(attempt)

    def _await_preparation(self, attempt: Attempt, node: NodeState, preparation: Preparation) -> None:
        """Lets a shard wait for its node's preparation, and starts the preparation for the first shard."""
        key = node.name, preparation.name
        if key not in self._unprepared:
            task = self._prepare.options(scheduling_strategy=self._cluster.on(node.name, elsewhere=False))
            self._running[task.remote(preparation)] = _Running(node, preparation=preparation.name)
        self._unprepared.setdefault(key, []).append(attempt)

    def _submit(self, attempt: Attempt, node: NodeState) -> None:
        shard = attempt.shard
        if attempt.several and shard.over_nodes:
            shard = replace(shard, work=shard.over_nodes, needs=on_host(shard.needs), over_nodes=None)
        needs = shard.needs
        options: dict[str, Any] = {"num_cpus": needs.cpus, "memory": int(needs.memory_gib * GIB)}
        if needs.gpus:
            options["num_gpus"] = needs.gpus
        if needs.gpu_type:
            options["accelerator_type"] = needs.gpu_type
        task = self._shard.options(
            name=attempt.shard.name, scheduling_strategy=self._cluster.on(node.name, spills=True), **options
        )
        attempt.begun += 1
        node.holds(attempt.shard.server)
        self._running[task.remote(shard, attempt.left)] = _Running(node, attempt)

    def _receive(self) -> None:
        """Receives all items that have arrived, or waits a moment for the next."""
        if not self._running:
            return
        ready, _ = self._ray.wait(
            list(self._running), num_returns=len(self._running), timeout=0, fetch_local=False
        )
        if not ready:
            ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_WAIT_S, fetch_local=False)
        for task in ready:
            self._receive_item(task, self._running[task])

    def _receive_item(self, task: Any, running: _Running) -> None:
        try:
            item = self._ray.get(next(task))
        except StopIteration:
            self._finish(task, running)
            return
        except self._ray.exceptions.RayTaskError as error:
            if not running.is_cancelled:
                raise (error.cause if isinstance(error.cause, Exception) else error) from None
            self._lose(task, running, "it was silent for too long")
            return
        except self._ray.exceptions.RayError as error:
            self._lose(task, running, what_happened(error))
            return
        running.last = monotonic()
        match item:
            case Started():
                running.is_started = True
            case Finished():
                self._record(running, item)
            case Line():
                self._cluster.say(f"{self._cluster.name_of(running.node.name)}: {item.text}")
            case Failed() if running.attempt is None:
                self._refuse(running, item.error)
            case Failed(of_node=True):
                self._lose(task, running, item.error.message)
            case Failed():
                self._errors.append(item.error)
                assert running.attempt is not None
                running.attempt.left = ()

    def _record(self, running: _Running, item: Finished) -> None:
        attempt = running.attempt
        assert attempt is not None
        if item.cell not in attempt.left:
            return
        self._done(item.result)
        attempt.left = tuple(cell for cell in attempt.left if cell != item.cell)
        attempt.lost = ()
        self._cluster.on_placement(
            Placement(
                item.cell,
                attempt.shard.name,
                self._cluster.name_of(running.node.name),
                round(item.seconds, 3),
                attempt.begun,
                round(running.last - self._started, 3),
            )
        )

    def _finish(self, task: Any, running: _Running) -> None:
        """Handles a task that has ended by itself: a preparation is made, or a shard has run."""
        self._running.pop(task, None)
        if running.attempt is None:
            if running.preparation not in running.node.refused:
                running.node.prepared.add(running.preparation)
            self._end_preparation(running)
            return
        self._release(running.attempt)
        if running.attempt.left:
            self._retry(running, "it ended before its last cell")

    def _end_preparation(self, running: _Running) -> None:
        """Submits the shards that waited for a preparation, or queues them again if it failed."""
        for attempt in self._unprepared.pop((running.node.name, running.preparation), []):
            if running.preparation in running.node.prepared:
                self._submit(attempt, running.node)
            else:
                self._release(attempt)
                self._give_back(attempt)
        self._refuse_unrunnable()

    def _refuse(self, running: _Running, error: HarnessError) -> None:
        name = self._cluster.name_of(running.node.name)
        self._cluster.say(
            f"{name} cannot make {running.preparation} and runs nothing that needs it: {error.message}"
        )
        running.node.refused.add(running.preparation)

    def _lose(self, task: Any, running: _Running, why: str) -> None:
        """Handles a task that was lost with its worker or its node."""
        self._running.pop(task, None)
        if running.attempt is None:
            self._refuse(running, HarnessError(why))
            self._end_preparation(running)
        else:
            self._release(running.attempt)
            self._retry(running, why)

    def _retry(self, running: _Running, why: str) -> None:
        attempt = running.attempt
        assert attempt is not None
        name = self._cluster.name_of(running.node.name)
        attempt.lost = (*attempt.lost, (running.node.name, why))
        if not attempt.left:
            return
        if len(attempt.lost) < ATTEMPTS:
            self._cluster.say(f"{attempt.shard.name} was lost on {name}, and runs again: {why}")
            self._give_back(attempt)
        else:
            self._errors.append(self._not_run(attempt))
            self._cluster.say(self._errors[-1].message)

    def _not_run(self, attempt: Attempt) -> NotRun:
        where = "; ".join(f"on {self._cluster.name_of(node)}: {why}" for node, why in attempt.lost)
        return NotRun(
            f"{attempt.shard.name}: {len(attempt.left)} cells did not run in {ATTEMPTS} attempts {where}",
            hint="check these nodes, and run the same command again: it skips what has finished",
        )

    def _check(self) -> None:
        """From time to time, looks for new and lost nodes, and cancels silent tasks."""
        now = monotonic()
        if now - self._checked < NODES_EVERY_S:
            return
        self._checked = now
        alive = {node.name: node for node in self._cluster.nodes()}
        for name in [name for name in self._nodes if name not in alive]:
            self._cluster.say(f"{self._cluster.name_of(name)} is gone")
            del self._nodes[name]
        for name in [name for name in alive if name not in self._nodes]:
            self._cluster.say(f"{self._cluster.name_of(name)} has joined")
            self._nodes[name] = alive[name]
        for task, running in list(self._running.items()):
            timeout_s = self._cluster.silence_timeout_s if running.is_started else _START_S
            if now - running.last > timeout_s + _END_S:
                self._cancel(task, force=True)
            elif now - running.last > timeout_s and not running.is_cancelled:
                running.is_cancelled = True
                self._cancel(task, force=False)
        if alive:
            self._refuse_unrunnable()

    def _refuse_unrunnable(self) -> None:
        """Reports shards that no node can run."""
        whole = self._cluster.nodes()
        for node in whole:
            if known := self._nodes.get(node.name):
                node.refused = known.refused
        unrunnable = [attempt for attempt in self._several if self._over(attempt, whole) is None]
        for attempt in unrunnable:
            self._several.remove(attempt)
        for attempt in [*unrunnable, *self._dispatcher.take_unrunnable(whole)]:
            refused = attempt.shard.preparation and any(
                attempt.shard.preparation.name in node.refused for node in whole
            )
            why = (
                f"no node with enough resources could make {attempt.shard.preparation.name}"
                if refused and attempt.shard.preparation
                else f"it needs {attempt.shard.needs}, which no node of this cluster has"
            )
            self._errors.append(ClusterError(f"{attempt.shard.name} cannot run: {why}"))

    def _cancel(self, task: Any, *, force: bool) -> None:
        with suppress(Exception):  # the task may just have ended
            self._ray.cancel(task, force=force)

    def _end_all(self) -> None:
        """Interrupts all running tasks, and waits until their servers have ended."""
        self._cluster.say(f"ending {len(self._running)} shards")
        for task in self._running:
            self._cancel(task, force=False)
        deadline = monotonic() + _END_S
        left = list(self._running)
        while left and monotonic() < deadline:
            ready, _ = self._ray.wait(left, num_returns=1, timeout=_WAIT_S)
            for task in ready:
                try:
                    self._ray.get(next(task))
                except (StopIteration, self._ray.exceptions.RayError):
                    left.remove(task)
        for task in left:
            self._cancel(task, force=True)


def what_happened(error: Exception) -> str:
    """A readable reason why a Ray task or actor was lost."""
    reasons = {
        "ActorDiedError": "its process or its node is gone",
        "WorkerCrashedError": "its process was killed",
        "NodeDiedError": "the node is gone",
        "OutOfMemoryError": "the node ran out of memory",
        "TaskCancelledError": "it was silent for too long",
    }
    name = type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    if name == "RuntimeEnvSetupError":  # the error ends with the last line of the installer's output
        return f"the harness cannot be installed there: {lines[-1]}"
    return reasons.get(name, f"{name}: {lines[0]}")


def _keep(log: Path, message: dict[str, Any], **_: object) -> None:
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.writelines(f"({message['pid']}) {line}\n" for line in message["lines"])


@contextmanager
def connected(address: str, *, runtime_env: dict[str, Any], log: Path) -> Iterator[Any]:
    """Yields the `ray` module, connected to a cluster.

    Args:
        address: `auto`, or the address of the head, `HOST:PORT`.
        runtime_env: the runtime environment of its workers; see `shipping.runtime_env`.
        log: the file to which Ray's own messages are appended, such as the log of a lost node.

    Raises:
        ClusterError: Ray is not installed, or no cluster answers at the address.
    """
    try:
        import ray
    except ImportError:
        raise ClusterError(
            "Ray is not installed with the harness", hint="pip install 'vllm-harness[cluster]'"
        ) from None
    if address.startswith("ray://"):
        raise ClusterError(
            f"{address} is an address for Ray clients, over which results cannot stream",
            hint="run this command on a node of the cluster or as one of its jobs, with --ray HOST:PORT",
        )
    on_term = signal.getsignal(signal.SIGTERM)
    # Ray would print it between the lines of the harness, and has no option against that
    ray._private.worker.print_to_stdstream = partial(_keep, log)
    try:
        ray.init(
            address=address,  # `auto` uses RAY_ADDRESS, and never starts a cluster
            runtime_env=runtime_env,
            log_to_driver=False,
            configure_logging=False,
        )
    except ConnectionError as error:
        raise ClusterError(
            f"no Ray cluster answers at {address}: {error}",
            hint="start one with `ray start --head`, or give the address of its head",
        ) from error
    signal.signal(signal.SIGTERM, on_term)  # Ray has replaced the handler
    try:
        yield ray
    finally:
        ray.shutdown()
