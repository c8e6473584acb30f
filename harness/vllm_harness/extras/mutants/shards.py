"""Mutants as shards, for an executor: each is a cell, judged on servers of its own where it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import HarnessError
from vllm_harness._machine.shard import Executor, Needs, Shard
from vllm_harness.extras.mutants.judge import Judge, MutantFate, MutantTrial
from vllm_harness.extras.mutants.mutant import ServingMutant


@dataclass(frozen=True)
class JudgingOptions:
    """How mutants are judged.

    Attributes:
        judge: chooses the tests of each; learns which tests kill as fates come.
        vllm: that a node makes before its first mutant.
        needs: what the servers of one take of a machine.
        ends: when no other one is begun, in seconds since the epoch; None: there is no limit.
    """

    judge: Judge
    vllm: VllmUnderTest
    needs: Needs
    ends: float | None = None

    def all(
        self, mutants: Sequence[ServingMutant], executor: Executor, done: Callable[[MutantFate], None]
    ) -> list[HarnessError]:
        """Judges them in their order, as many at a time as the executor runs.

        Args:
            mutants: which.
            executor: where they run.
            done: called with each fate, by one thread at a time.

        Returns:
            The errors of mutants that did not run.
        """

        lock = Lock()

        def keep(fate: MutantFate | None) -> None:
            if fate is not None:
                with lock:
                    self.judge.learn([fate])
                    done(fate)

        return executor.run([self._shard(mutant) for mutant in mutants], keep)

    def _shard(self, mutant: ServingMutant) -> Shard[MutantFate | None]:
        return Shard(
            name=mutant.id,
            cells=(mutant.id,),
            work=_Judged(self.judge, mutant, self.ends),
            needs=self.needs,
            preparation=self.vllm.preparation,
        )


@dataclass(frozen=True)
class _Judged:
    """Judges a mutant, with the tests that are chosen when it begins.

    What travels to another machine are these tests, as chosen when it is sent, and not what all tests run.
    """

    judge: Judge
    mutant: ServingMutant
    ends: float | None

    def __call__(self, cells: Sequence[str]) -> Iterator[tuple[str, MutantFate | None]]:
        return _in_time(self.judge.trial(self.mutant), self.ends, cells)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (_in_time, self.judge.trial(self.mutant), self.ends)


def _in_time(
    trial: MutantTrial, ends: float | None, cells: Sequence[str]
) -> Iterator[tuple[str, MutantFate | None]]:
    """The fate of a mutant; none where it is too late to begin."""
    for cell in cells:
        yield cell, None if ends is not None and time.time() > ends else trial.fate()
