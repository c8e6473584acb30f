"""Shards: cells that share what is expensive to start; and their executor on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from vllm_harness._errors import HarnessError
from vllm_harness._machine.tasks import run_tasks

R = TypeVar("R")
Work = Callable[[Sequence[str]], Iterator[tuple[str, R]]]
"""Runs the cells with these names; yields the name and the result of each as it finishes."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Needs:
    """What a shard needs of a machine while it runs.

    Attributes:
        cpus: processors.
        memory_gib: memory of the machine, GiB.
        gpus: whole GPUs.
        gpu_type: Ray's name for their type, such as `H100`; empty for any.
    """

    cpus: float = 1.0
    memory_gib: float = 1.0
    gpus: int = 0
    gpu_type: str = ""

    def __str__(self) -> str:
        kind = f" of the type {self.gpu_type}" if self.gpu_type else ""
        gpus = f", {self.gpus} GPUs{kind}" if self.gpus else ""
        return f"{self.cpus:g} CPUs, {self.memory_gib:g} GiB{gpus}"


@dataclass(frozen=True)
class Preparation:
    """What a node makes once, before its first shard that needs it, such as an environment.

    Attributes:
        name: the name of what is made, such as `vLLM 0.32.0`.
        make: makes it if it is missing, and passes a line for each step to its argument.
    """

    name: str
    make: Callable[[Say], None]


@dataclass(frozen=True)
class Shard(Generic[R]):
    """Cells that run one after the other in one place.

    Pickle carries `work` and `preparation` to another machine.

    Attributes:
        name: the name for people.
        cells: the names of its cells, in their order.
        work: runs cells of the shard; finished cells are not requested again.
        needs: what it needs while it runs.
        preparation: what the node makes before.
        server: shards with the same name share a fork server, so they prefer a node where it is running.
        weight: its approximate duration, in any unit that is the same for all shards of a run.
        over_nodes: the work if no node has enough GPUs: it gets them from Ray, on several nodes. None if it
            needs them on one node.
    """

    name: str
    cells: tuple[str, ...]
    work: Work[R]
    needs: Needs = field(default_factory=Needs)
    preparation: Preparation | None = None
    server: str = ""
    weight: float = 1.0
    over_nodes: Work[R] | None = None


class Executor(Protocol):
    """The interface of `ThisMachine` and `RayCluster`, which run shards."""

    def deal(self, cells: int, *, apart: bool) -> int:
        """The number of shards for a number of cells.

        Args:
            cells: the number of cells.
            apart: whether each cell starts what it needs, such as a server, even in the same shard.
        """

    def run(self, shards: Sequence[Shard[R]], done: Callable[[R], None]) -> list[HarnessError]:
        """Runs shards in parallel.

        Args:
            shards: the shards.
            done: receives each result as it comes, from one or several threads.

        Returns:
            The errors of failed shards; the other shards have run.
        """


@dataclass(frozen=True)
class ThisMachine:
    """Runs shards in threads of this process, `parallel` at a time; see `Executor`."""

    parallel: int

    def deal(self, cells: int, *, apart: bool) -> int:
        return self.parallel

    def run(self, shards: Sequence[Shard[R]], done: Callable[[R], None]) -> list[HarnessError]:
        return run_tasks([partial(_run, shard, done) for shard in shards], self.parallel)


def _run(shard: Shard[R], done: Callable[[R], None]) -> None:
    for _, result in shard.work(shard.cells):
        done(result)
