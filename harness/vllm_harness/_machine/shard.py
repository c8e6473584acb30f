"""A shard: cells that share what is expensive to start, and what they need of a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from vllm_harness._errors import HarnessError

R = TypeVar("R")
Work = Callable[[Sequence[str]], Iterator[tuple[str, R]]]
"""Runs the cells of these names; yields the name and the result of each as it finishes."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Needs:
    """What a shard takes of a machine while it runs.

    Attributes:
        cpus: processors.
        memory_gib: of the machine, GiB.
        gpus: whole GPUs.
        gpu_type: Ray's name of their kind, such as `H100`; empty: any.
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
    """What a node makes once, before its first shard that wants it: an environment, assets.

    Attributes:
        name: of what is made, such as `vLLM 0.32.0`.
        make: makes it where it is missing; receives what takes a line for each step.
    """

    name: str
    make: Callable[[Say], None]


@dataclass(frozen=True)
class Shard(Generic[R]):
    """Cells that run one after the other in one place.

    On another machine `work` and `preparation` arrive by pickle.

    Attributes:
        name: of the shard, for people.
        cells: the names of its cells, in the order in which they run.
        work: runs cells of it; those that have finished are not asked for again.
        needs: what it takes while it runs.
        preparation: what the node needs to have made.
        server: shards of the same name share a fork server and what it holds, so they go where it is up.
        weight: about how long it takes, in any unit that is the same for all shards of a run.
        over_nodes: the work where no node has as many GPUs as it needs: what it starts takes them of Ray by
            itself, on several nodes. None: it needs them on one node.
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
    """Runs shards. There are two: `ThisMachine`, and `RayCluster`."""

    def deal(self, cells: int, *, apart: bool) -> int:
        """Into how many shards to deal cells.

        Args:
            cells: how many there are.
            apart: whether each starts what it needs, such as a server, even beside others in a shard.
        """

    def run(self, shards: Sequence[Shard[R]], done: Callable[[R], None]) -> list[HarnessError]:
        """Runs shards side by side.

        Args:
            shards: that run.
            done: called with each result as it comes, by one thread at a time or by several.

        Returns:
            The errors of shards that failed; the others ran.
        """
