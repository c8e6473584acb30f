"""Runs mutants on an executor, as shards with one mutant each, which is judged on its own servers."""

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
from vllm_harness.extras.mutants.judge import Judge, JudgedMutant, MutantTrial
from vllm_harness.extras.mutants.mutant import ServingMutant


@dataclass(frozen=True)
class JudgingOptions:
    """How mutants are judged.

    Attributes:
        judge: chooses the tests for each mutant, and learns from the results which tests kill mutants.
        vllm: the vLLM that a node installs before its first mutant.
        needs: the resources that the servers of one mutant need.
        ends: the time after which no mutant is started, in seconds since the epoch; None for no limit.
    """

    judge: Judge
    vllm: VllmUnderTest
    needs: Needs
    ends: float | None = None

    def judge_all(
        self, mutants: Sequence[ServingMutant], executor: Executor, done: Callable[[JudgedMutant], None]
    ) -> list[HarnessError]:
        """Judges mutants in their order, as many at a time as the executor can run.

        Args:
            mutants: the mutants to judge.
            executor: runs the mutants, on this machine or on a cluster.
            done: called with each result, from one thread at a time.

        Returns:
            The errors of mutants that did not run.
        """

        lock = Lock()

        def receive(result: JudgedMutant | None) -> None:
            if result is not None:
                with lock:
                    self.judge.learn([result])
                    done(result)

        return executor.run([self._shard(mutant) for mutant in mutants], receive)

    def _shard(self, mutant: ServingMutant) -> Shard[JudgedMutant | None]:
        return Shard(
            name=mutant.id,
            cells=(mutant.id,),
            work=_JudgeWork(self.judge, mutant, self.ends),
            needs=self.needs,
            preparation=self.vllm.preparation,
        )


@dataclass(frozen=True)
class _JudgeWork:
    """Judges a mutant with tests that are chosen when the work starts.

    If the work is pickled for another machine, the tests are chosen then, so that the coverage is not sent.
    """

    judge: Judge
    mutant: ServingMutant
    ends: float | None

    def __call__(self, cells: Sequence[str]) -> Iterator[tuple[str, JudgedMutant | None]]:
        return _in_time(self.judge.trial(self.mutant), self.ends, cells)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (_in_time, self.judge.trial(self.mutant), self.ends)


def _in_time(
    trial: MutantTrial, ends: float | None, cells: Sequence[str]
) -> Iterator[tuple[str, JudgedMutant | None]]:
    """Judges a mutant; the result is None if the time for judging mutants is over."""
    for cell in cells:
        yield cell, None if ends is not None and time.time() > ends else trial.judge()
