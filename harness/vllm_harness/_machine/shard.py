"""Shards: cells that share resources that are expensive to start; and the executor for this machine."""

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
    """The resources that a shard needs on a machine while it runs.

    Attributes:
        cpus: number of processors.
        memory_gib: main memory, GiB.
        gpus: number of whole GPUs.
        gpu_type: Ray's name for the type of GPU, such as `H100`; empty for any type.
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
    """Something that a node makes once before the first shard that needs it, such as an environment.

    Attributes:
        name: the name of the thing to make, such as `vLLM 0.32.0`.
        make: makes the thing if it is missing; reports each step as a line to the callback that it is passed.
    """

    name: str
    make: Callable[[Say], None]


@dataclass(frozen=True)
class Shard(Generic[R]):
    """Cells that run one after the other on the same machine.

    `work` and `preparation` are pickled to be sent to another machine.

    Attributes:
        name: a human-readable name.
        cells: the names of the cells, in the order in which they run.
        work: runs the cells with the given names; after a loss, it is not called again for finished cells.
        needs: the resources that the shard needs while it runs.
        preparation: what the node makes before it runs the shard.
        server: shards with the same value share a fork server, so they prefer a node on which it runs.
        weight: the approximate duration of the shard, in any unit that is the same for all shards of a run.
        over_nodes: the work to run instead if no node has enough GPUs: it gets GPUs on several nodes from
            Ray. None if all GPUs must be on one node.
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
        """The number of shards to deal a number of cells into.

        Args:
            cells: the number of cells.
            apart: whether each cell starts its own server or the like, so that sharing a shard saves nothing.
        """

    def run(self, shards: Sequence[Shard[R]], done: Callable[[R], None]) -> list[HarnessError]:
        """Runs shards in parallel.

        Args:
            shards: the shards.
            done: is called with each result when it arrives, from one or several threads.

        Returns:
            The errors of the failed shards; all other shards have run.
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
