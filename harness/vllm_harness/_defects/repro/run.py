"""The run of `repro`: verdicts on many defects on many versions, stored as JSON lines, so it can resume."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Container, Iterable, Iterator
from functools import partial
from pathlib import Path

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.reproducer import Job, jobs_of, run_job
from vllm_harness._defects.repro.verdict import Measured, agrees, expected_verdict
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._files.line_file import read_lines, truncate_to_complete_lines
from vllm_harness._machine.shard import Needs, Shard
from vllm_harness._runs.records import CaseRecord, RunFinding, TargetRecord, case_outcome
from vllm_harness._server.leases.allocation import INTERPRETER_GIB
from vllm_harness._server.leases.expected import expected_needs
from vllm_harness._server.progress import StartProgress

REPRO = "repro"
"""The folder of the runs in the state folder."""


class MeasuredRun:
    """The run folder in which verdicts are stored.

    Args:
        folder: the folder with `verdicts.jsonl`.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "verdicts.jsonl"
        self._lock = threading.Lock()
        self._is_whole = False

    def verdicts(self) -> dict[tuple[str, str], Measured]:
        """Reads the verdicts by id and environment. Raises UsageError, with the line, if one is invalid."""
        hint = "remove the line to measure it again"
        lines = read_lines(self.path, Measured, what="verdict of a run", hint=hint)
        return {(measured.id, measured.vllm): measured for measured in lines}

    def write(self, measured: Measured) -> None:
        """Adds a verdict."""
        line = measured.model_dump_json(exclude_defaults=True) + "\n"
        with self._lock:
            if not self._is_whole:
                truncate_to_complete_lines(self.path)
                self._is_whole = True
            with self.path.open("a") as file:
                file.write(line)


def shards_of(
    defects: Iterable[Defect],
    environments: Iterable[VllmUnderTest],
    known: Container[tuple[str, str]] = (),
) -> list[Shard[Measured]]:
    """Makes shards that measure defects in environments, except the (id, environment) pairs in `known`."""
    jobs = jobs_of(defects)
    shards = []
    for vllm in environments:
        for job in jobs:
            rest = job.without({defect.id for defect in job.defects if (defect.id, vllm.spec) in known})
            if rest.reproducers:
                shards.append(_shard(vllm, rest))
    return shards


def _shard(vllm: VllmUnderTest, job: Job) -> Shard[Measured]:
    first, needs = job.first, Needs(memory_gib=INTERPRETER_GIB)
    if first.entry:
        needs = expected_needs(first.entry, vllm.environment, "scripted", first.frontend)
    return Shard(
        name=f"{vllm.spec} {first.place}",
        cells=tuple(f"{vllm.spec} {each.id}" for each in job.defects),
        work=partial(_measured, vllm, job),
        needs=needs,
        preparation=vllm.preparation,
        server=f"{vllm.spec} {first.place}",
        weight=1.0 + 0.1 * len(job.defects),
    )


def _measured(vllm: VllmUnderTest, job: Job, names: Collection[str]) -> Iterator[tuple[str, Measured]]:
    """Measures the named defects of a job on this machine."""
    here = vllm.here()
    rest = job.without({defect.id for defect in job.defects if f"{vllm.spec} {defect.id}" not in names})
    for defect, outcome in run_job(
        rest, here.environment, progress=StartProgress(), one_of_many=here is not vllm
    ):
        measured = Measured.of(defect.id, vllm.spec, here.environment.vllm_version, outcome)
        yield f"{vllm.spec} {defect.id}", measured


def target_of(measured: Measured) -> TargetRecord:
    """Makes the record of the vLLM that was measured."""
    return TargetRecord(
        id=measured.vllm or measured.version, title="vLLM", vllm=measured.vllm or measured.version
    )


def case_of(defect: Defect, measured: Measured) -> CaseRecord:
    """Makes the case record of a measured defect, with a finding if the verdict contradicts the entry."""
    agreed, shows = agrees(defect, measured), measured.verdict == "reproduced"
    says = f"the entry says {expected_verdict(defect, measured.version)}, but it is {measured.verdict}"
    findings = () if agreed else (RunFinding(message=says),)
    defects = (measured.id,) if shows else ()
    return CaseRecord(
        id=measured.id,
        target=target_of(measured).id,
        group=defect.kind,
        title=defect.title,
        outcome=case_outcome(findings, defects=defects, skipped=measured.verdict == "not applicable"),
        defects=defects,
        reason=measured.why if agreed else ": ".join(filter(None, (says, measured.why))),
        details=json.dumps(measured.answers, indent=1, ensure_ascii=False) if measured.answers else "",
        findings=findings,
    )
