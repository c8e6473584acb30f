"""Makes shards from the targets of a run, for an executor."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vllm_harness._configuration.model_entries import Lane, ModelEntry
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._machine.shard import Shard
from vllm_harness._server.leases.expected import expected_needs
from vllm_harness.extras.cluster.suites.on_node import SuiteResult, run_suite

BY_RAY = ("--vllm-server-arg=--distributed-executor-backend=ray",)
"""Makes vLLM's workers run on the GPUs that Ray assigns, on any node."""
SERVERS = 2
"""How many servers a test may use at once; further servers wait for memory on their node."""


@dataclass(frozen=True)
class TargetJob:
    """The suites to run on a target: a model entry on a lane, served by one vLLM.

    Attributes:
        vllm: the server environment and the front end.
        entry: the model entry.
        lane: the lane of its servers.
        suites: folders of tests, relative to the checkout.
        arguments: additional arguments for pytest.
    """

    vllm: VllmUnderTest
    entry: ModelEntry
    lane: Lane
    suites: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A readable name, such as `0.32.0 scripted-qwen3`."""
        return f"{self.vllm.name} {self.lane}-{self.entry.name}"


def shard_of(job: TargetJob) -> Shard[SuiteResult]:
    """Makes the shard of a target, for an executor."""
    needs = expected_needs(job.entry, job.vllm.environment, job.lane, job.vllm.frontend)
    return Shard(
        name=job.name,
        cells=tuple(_cell(job, suite) for suite in job.suites),
        work=partial(_suites_named, job),
        needs=replace(needs, memory_gib=SERVERS * needs.memory_gib),
        preparation=job.vllm.preparation,
        server=job.name,
        weight=float(len(job.suites)),
        over_nodes=partial(_suites_named, replace(job, arguments=(*BY_RAY, *job.arguments)))
        if needs.gpus
        else None,
    )


def without(jobs: Sequence[TargetJob], finished: Collection[str]) -> list[TargetJob]:
    """Removes finished cells from the jobs, and drops jobs that have no suite left."""
    left = (
        replace(job, suites=tuple(suite for suite in job.suites if _cell(job, suite) not in finished))
        for job in jobs
    )
    return [job for job in left if job.suites]


def _cell(job: TargetJob, suite: str) -> str:
    return f"{job.name} {suite}"


def _suites_named(job: TargetJob, names: Sequence[str]) -> Iterator[tuple[str, SuiteResult]]:
    """Runs some suites of a target on this machine, and yields their results by cell."""
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
