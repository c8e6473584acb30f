"""The verdicts of many defects on many versions: JSON lines, written as they come; a run can go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from pydantic import Field

from vllm_harness.defects.entry import Defect
from vllm_harness.defects.repro.run import Job, entry_of_job, jobs_of, run_job
from vllm_harness.defects.repro.verdict import Reproduction, Verdict
from vllm_harness.environments.under_test import VllmUnderTest
from vllm_harness.errors import HarnessError
from vllm_harness.files.line_file import end_whole, read_lines
from vllm_harness.files.strict import StrictModel
from vllm_harness.machine.shard import Executor, Needs, Shard
from vllm_harness.machine.this_machine import ThisMachine
from vllm_harness.protocol.core.events import Json
from vllm_harness.server.leases.allocation import INTERPRETER_GIB, expected_needs
from vllm_harness.server.progress import StartProgress


class Measured(StrictModel):
    """The verdict of one defect on one vLLM.

    Attributes:
        id: of the defect.
        vllm: the environment, as in `--vllm`.
        version: of that vLLM.
        verdict, why, case, delivery, answers: as of `Reproduction`.
    """

    id: str
    vllm: str
    version: str
    verdict: Verdict
    why: str = ""
    case: str = ""
    delivery: str = ""
    answers: list[Json] = Field(default_factory=list)

    @classmethod
    def of(cls, defect: str, vllm: str, version: str, outcome: Reproduction) -> Measured:
        """An outcome with what it is of."""
        return cls(id=defect, vllm=vllm, version=version, **asdict(outcome))

    @property
    def outcome(self) -> Reproduction:
        """As it was reproduced."""
        return Reproduction(self.verdict, self.why, self.case, self.delivery, self.answers)


class MeasuredRun:
    """The folder of a run.

    Args:
        folder: where `verdicts.jsonl` stands, or is to stand.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "verdicts.jsonl"
        self._lock = threading.Lock()
        self._is_whole = False

    def verdicts(self) -> dict[tuple[str, str], Measured]:
        """Those there are, by id and environment. Raises UsageError, naming file and line."""
        hint = "remove the line; it is measured again"
        lines = read_lines(self.path, Measured, what="verdict of a run", hint=hint)
        return {(measured.id, measured.vllm): measured for measured in lines}

    def write(self, measured: Measured) -> None:
        """Adds a verdict."""
        line = measured.model_dump_json(exclude_defaults=True) + "\n"
        with self._lock:
            if not self._is_whole:
                end_whole(self.path)
                self._is_whole = True
            with self.path.open("a") as file:
                file.write(line)


def measure(
    run: MeasuredRun,
    defects: Iterable[Defect],
    environments: Sequence[VllmUnderTest],
    *,
    parallel: int,
    progress: StartProgress,
    done: Callable[[Measured], None],
    executor: Executor | None = None,
) -> list[HarnessError]:
    """Reproduces what the run has no verdict of yet, jobs side by side; returns the errors of failed ones.

    Args:
        parallel: jobs at a time on this machine, where no executor is given.
        progress: of the starts of servers.
        done: called with each verdict.
        executor: that runs the jobs.
    """

    def keep(measured: Measured) -> None:
        run.write(measured)
        done(measured)

    shards = [shard_of(vllm, job, progress) for vllm, job in unmeasured(run, defects, environments)]
    return (executor or ThisMachine(parallel)).run(shards, keep)


def shard_of(vllm: VllmUnderTest, job: Job, progress: StartProgress) -> Shard[Measured]:
    """What an executor runs of a job."""
    gib, gpus = INTERPRETER_GIB, 0
    if entry := entry_of_job(job):
        gib, gpus = expected_needs(entry, vllm.environment, "scripted", job.frontend)
    return Shard(
        name=f"{vllm.spec} {job.name}",
        cells=tuple(f"{vllm.spec} {defect.id}" for defect in job.defects),
        work=partial(_measured, vllm, job, progress),
        needs=Needs(memory_gib=gib, gpus=gpus),
        preparation=vllm.preparation,
        server=f"{vllm.spec} {job.name}",
        weight=1.0 + 0.1 * len(job.defects),
    )


def _measured(
    vllm: VllmUnderTest, job: Job, progress: StartProgress, names: Collection[str]
) -> Iterator[tuple[str, Measured]]:
    """The verdicts of these defects of a job, where this runs."""
    here = vllm.here()
    left = without(job, lambda defect: f"{vllm.spec} {defect.id}" not in names)
    for defect, outcome in run_job(left, here.environment, progress=progress, one_of_many=here is not vllm):
        measured = Measured.of(defect.id, vllm.spec, here.environment.vllm_version, outcome)
        yield f"{vllm.spec} {defect.id}", measured


def without(job: Job, is_done: Callable[[Defect], bool]) -> Job:
    """A job without the defects that are done."""
    steps = tuple(each for each in job.steps if not is_done(each))
    cases = tuple(each for each in job.cases if not is_done(each[0]))
    costs = tuple(each for each in job.costs if not is_done(each[0]))
    return replace(job, steps=steps, cases=cases, costs=costs)


def unmeasured(
    run: MeasuredRun, defects: Iterable[Defect], environments: Sequence[VllmUnderTest]
) -> list[tuple[VllmUnderTest, Job]]:
    """The jobs of a run, each with the defects that have no verdict yet."""
    known = run.verdicts()
    jobs = jobs_of(defects)
    left = []
    for vllm in environments:
        for job in jobs:
            rest = without(job, partial(_is_known, known, vllm.spec))
            if rest.defects:
                left.append((vllm, rest))
    return left


def _is_known(known: Collection[tuple[str, str]], spec: str, defect: Defect) -> bool:
    return (defect.id, spec) in known


def agrees(defect: Defect, measured: Measured) -> bool:
    """Whether a verdict is what the entry's versions say."""
    if measured.verdict == "not applicable":
        return True
    return measured.verdict == expected_verdict(defect, measured.version)


def expected_verdict(defect: Defect, version: str) -> Verdict:
    """What the entry says of a version."""
    return "reproduced" if defect.holds_for(version) else "fixed"
