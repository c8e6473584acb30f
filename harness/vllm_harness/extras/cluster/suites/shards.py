"""The targets of a run as shards, for an executor."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vllm_harness._configuration.model_entries import Lane, ModelEntry
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._machine.shard import Needs, Shard
from vllm_harness._server.leases.allocation import expected_needs
from vllm_harness.extras.cluster.suites.on_node import SuiteResult, run_suite

BY_RAY = ("--vllm-server-arg=--distributed-executor-backend=ray",)
"""Has vLLM's workers run on the GPUs that Ray gives them, on whatever nodes."""
SERVERS = 2
"""Servers that a test may use at once, beside others that wait for memory on their node."""


@dataclass(frozen=True)
class TargetJob:
    """A model entry on a lane of a vLLM, whose suites run.

    Attributes:
        vllm: the server environment and the front end.
        entry: the model entry.
        lane: of its servers.
        suites: folders of tests, relative to the checkout.
        arguments: further ones of pytest.
    """

    vllm: VllmUnderTest
    entry: ModelEntry
    lane: Lane
    suites: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For people: `0.32.0 scripted-qwen3`."""
        return f"{self.vllm.name} {self.lane}-{self.entry.name}"


def shard_of(job: TargetJob) -> Shard[SuiteResult]:
    """What an executor runs of a target."""
    gib, gpus = expected_needs(job.entry, job.vllm.environment, job.lane, job.vllm.frontend)
    return Shard(
        name=job.name,
        cells=tuple(_cell(job, suite) for suite in job.suites),
        work=partial(_suites_named, job),
        needs=Needs(memory_gib=SERVERS * gib, gpus=gpus),
        preparation=job.vllm.preparation,
        server=job.name,
        weight=float(len(job.suites)),
        over_nodes=partial(_suites_named, replace(job, arguments=(*BY_RAY, *job.arguments)))
        if gpus
        else None,
    )


def without(jobs: Sequence[TargetJob], finished: Collection[str]) -> list[TargetJob]:
    """The jobs without the cells that have finished."""
    left = (
        replace(job, suites=tuple(suite for suite in job.suites if _cell(job, suite) not in finished))
        for job in jobs
    )
    return [job for job in left if job.suites]


def _cell(job: TargetJob, suite: str) -> str:
    return f"{job.name} {suite}"


def _suites_named(job: TargetJob, names: Sequence[str]) -> Iterator[tuple[str, SuiteResult]]:
    """The results of these suites of a target, where this runs."""
    vllm = job.vllm.here()
    options = (
        f"--vllm-model={job.entry.name}",
        f"--vllm-lane={job.lane}",
        f"--vllm={vllm.spec}",
        f"--vllm-frontend={vllm.frontend}",
        *job.arguments,
    )
    for suite in job.suites:
        if (cell := _cell(job, suite)) in names:
            yield cell, run_suite(cell, suite, options)
