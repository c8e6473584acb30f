"""Shards side by side in threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from vllm_harness._errors import HarnessError
from vllm_harness._machine.shard import R, Shard
from vllm_harness._machine.tasks import run_tasks


@dataclass(frozen=True)
class ThisMachine:
    """The executor of this machine.

    Attributes:
        parallel: how many shards run at a time.
    """

    parallel: int

    def deal(self, cells: int, *, apart: bool) -> int:
        """As many as run at a time; see `Executor`."""
        return self.parallel

    def run(self, shards: Sequence[Shard[R]], done: Callable[[R], None]) -> list[HarnessError]:
        """Runs shards, so many at a time; see `Executor`."""
        return run_tasks([partial(_run, shard, done) for shard in shards], self.parallel)


def _run(shard: Shard[R], done: Callable[[R], None]) -> None:
    for _, result in shard.work(shard.cells):
        done(result)
