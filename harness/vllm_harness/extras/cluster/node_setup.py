"""Nodes that come bare: Ray's own Python gives each its outfit, and from then on it is a node of the run."""

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
"""How long a node may take for a step of its outfit."""
Make = Callable[[], Iterator[tuple[bool, str]]]


@dataclass(frozen=True)
class SetupPlan:
    """What a bare node needs before the harness runs on it.

    Attributes:
        make: makes it on the node, where it arrives by value: yields lines of progress, or, with True,
            why it cannot.
        by_value: the modules that travel with it, as no node has them.
        runtime_env: Ray's description of what runs on the node from then on.
    """

    make: Make
    by_value: Sequence[ModuleType]
    runtime_env: Mapping[str, Any]


@dataclass
class _SetupTask:
    node: str
    last: float = field(default_factory=monotonic)


class NodeSetup:
    """The nodes of a cluster on their way to their outfit.

    Args:
        ray: the module, connected.
        outfit: of each node.
        say: takes a line for people.
        name_of: gives the name of a node for people.
        strategy: gives Ray's strategy for what runs on a node and nowhere else.
        what_happened: says why a task was lost.

    Attributes:
        left_out: the nodes that could not be given it, and why.
    """

    def __init__(
        self,
        ray: Any,
        outfit: SetupPlan,
        say: Say,
        name_of: Callable[[str], str],
        strategy: Callable[[str], Any],
        what_happened: Callable[[Exception], str],
    ) -> None:
        self._ray, self._say, self._name_of = ray, say, name_of
        self._strategy, self._what_happened = strategy, what_happened
        self._coming: dict[Any, _SetupTask] = {}
        self._begun: Counter[str] = Counter()
        self._arrived: set[str] = set()
        self.left_out: dict[str, str] = {}
        for module in outfit.by_value:
            ray.cloudpickle.register_pickle_by_value(module)
        self._make = ray.put(outfit.make)
        self._task = ray.remote(max_retries=0, num_returns="streaming", num_cpus=0)(_made_by_value())

    @property
    def in_progress(self) -> bool:
        """Whether a node is being given its outfit."""
        return bool(self._coming)

    def arrived(self, alive: Sequence[str]) -> set[str]:
        """Those of these nodes that have it; begins with new ones, and takes in what others tell."""
        for node in alive:
            if node not in self._begun:
                self._begin(node)
        while ready := self._ready():
            for task in ready:
                self._hear(task, self._coming[task])
        for task, coming in list(self._coming.items()):
            if monotonic() - coming.last > SILENT_S:
                self._ray.cancel(task, force=True)
                self._leave_out(task, coming, "it was silent for too long")
        return self._arrived & set(alive)

    def _begin(self, node: str) -> None:
        self._begun[node] += 1
        task = self._task.options(scheduling_strategy=self._strategy(node)).remote(self._make)
        self._coming[task] = _SetupTask(node)

    def _ready(self) -> list[Any]:
        tasks = list(self._coming)
        if not tasks:
            return []
        ready: list[Any]
        ready, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0, fetch_local=False)
        return ready

    def _hear(self, task: Any, coming: _SetupTask) -> None:
        try:
            failed, text = self._ray.get(next(task))
        except StopIteration:
            del self._coming[task]
            self._arrived.add(coming.node)
        except self._ray.exceptions.RayError as error:
            self._lose(task, coming, self._what_happened(error))
        else:
            coming.last = monotonic()
            if failed:
                self._leave_out(task, coming, text)
            else:
                self._say(f"{self._name_of(coming.node)}: {text}")

    def _lose(self, task: Any, coming: _SetupTask, why: str) -> None:
        if self._begun[coming.node] == ATTEMPTS:
            self._leave_out(task, coming, why)
            return
        del self._coming[task]
        self._say(f"{self._name_of(coming.node)} is set up once more: {why}")
        self._begin(coming.node)

    def _leave_out(self, task: Any, coming: _SetupTask, why: str) -> None:
        del self._coming[task]
        self.left_out[coming.node] = why
        self._say(f"{self._name_of(coming.node)} is left out: {why}")


def _made_by_value() -> Callable[[Make], Iterator[tuple[bool, str]]]:
    """What runs `make` on a node: a function within one travels by value, as the node cannot import it."""

    def made(make: Make) -> Iterator[tuple[bool, str]]:
        yield from make()

    return made
