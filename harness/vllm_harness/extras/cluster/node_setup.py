"""Sets up nodes that have only Python and Ray, before a run uses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from types import ModuleType
from typing import Any

from vllm_harness._machine.shard import Say
from vllm_harness.extras.cluster.dispatch import ATTEMPTS

SILENT_S = 1800.0
"""How many seconds a node may take for a step of its setup."""
SetUp = Callable[[], Iterator[tuple[bool, str]]]


@dataclass(frozen=True)
class SetupPlan:
    """How to set up a node so that the harness can run on it.

    Attributes:
        set_up: a function that sets up the node on which it runs, sent there by value. It yields pairs:
            False and a line of progress, or True and the reason for a failure.
        by_value: the modules to send with it, which the nodes do not have.
        runtime_env: Ray's runtime environment for tasks that run on the node afterwards.
    """

    set_up: SetUp
    by_value: Sequence[ModuleType]
    runtime_env: Mapping[str, Any]


@dataclass
class _SetupTask:
    node: str
    last: float = field(default_factory=monotonic)


class NodeSetup:
    """Sets up the nodes of a cluster, each with a Ray task.

    Args:
        ray: the `ray` module, connected to the cluster.
        plan: how to set up a node.
        say: prints a line.
        name_of: returns the readable name of a node.
        strategy: returns Ray's scheduling strategy that pins a task to a node.
        what_happened: returns why a task was lost.

    Attributes:
        left_out: node -> why it could not be set up.
    """

    def __init__(
        self,
        ray: Any,
        plan: SetupPlan,
        say: Say,
        name_of: Callable[[str], str],
        strategy: Callable[[str], Any],
        what_happened: Callable[[Exception], str],
    ) -> None:
        self._ray, self._say, self._name_of = ray, say, name_of
        self._strategy, self._what_happened = strategy, what_happened
        self._running: dict[Any, _SetupTask] = {}
        self._starts: Counter[str] = Counter()
        self._ready: set[str] = set()
        self.left_out: dict[str, str] = {}
        for module in plan.by_value:
            ray.cloudpickle.register_pickle_by_value(module)
        self._set_up = ray.put(plan.set_up)
        self._task = ray.remote(max_retries=0, num_returns="streaming", num_cpus=0)(_sent_by_value())

    @property
    def in_progress(self) -> bool:
        """Whether a node is being set up."""
        return bool(self._running)

    def ready(self, alive: Sequence[str]) -> set[str]:
        """Returns the nodes that are set up; starts the setup of new nodes, and receives progress."""
        for node in alive:
            if node not in self._starts:
                self._start(node)
        while tasks := self._with_results():
            for task in tasks:
                self._receive(task, self._running[task])
        for task, setup in list(self._running.items()):
            if monotonic() - setup.last > SILENT_S:
                self._ray.cancel(task, force=True)
                self._leave_out(task, setup, "it was silent for too long")
        return self._ready & set(alive)

    def _start(self, node: str) -> None:
        self._starts[node] += 1
        task = self._task.options(scheduling_strategy=self._strategy(node)).remote(self._set_up)
        self._running[task] = _SetupTask(node)

    def _with_results(self) -> list[Any]:
        tasks = list(self._running)
        if not tasks:
            return []
        ready: list[Any]
        ready, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0, fetch_local=False)
        return ready

    def _receive(self, task: Any, setup: _SetupTask) -> None:
        try:
            failed, text = self._ray.get(next(task))
        except StopIteration:
            del self._running[task]
            self._ready.add(setup.node)
        except self._ray.exceptions.RayError as error:
            self._retry(task, setup, self._what_happened(error))
        else:
            setup.last = monotonic()
            if failed:
                self._leave_out(task, setup, text)
            else:
                self._say(f"{self._name_of(setup.node)}: {text}")

    def _retry(self, task: Any, setup: _SetupTask, why: str) -> None:
        if self._starts[setup.node] == ATTEMPTS:
            self._leave_out(task, setup, why)
            return
        del self._running[task]
        self._say(f"{self._name_of(setup.node)} is set up once more: {why}")
        self._start(setup.node)

    def _leave_out(self, task: Any, setup: _SetupTask, why: str) -> None:
        del self._running[task]
        self.left_out[setup.node] = why
        self._say(f"{self._name_of(setup.node)} is left out: {why}")


def _sent_by_value() -> Callable[[SetUp], Iterator[tuple[bool, str]]]:
    """Returns the task's function; it is nested to be sent by value, as nodes cannot import this module."""

    def run(set_up: SetUp) -> Iterator[tuple[bool, str]]:
        yield from set_up()

    return run
