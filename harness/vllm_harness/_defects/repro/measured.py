"""The verdicts of many defects on many versions: JSON lines, written as they come; a run can go on."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pydantic import Field

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.reproducer import Job, jobs_of, run_job
from vllm_harness._defects.repro.verdict import Reproduction, Verdict
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._files.line_file import end_whole, read_lines
from vllm_harness._files.strict import StrictModel
from vllm_harness._machine.shard import Needs, Shard
from vllm_harness._protocol.core.events import Json
from vllm_harness._runs.records import CaseRecord, Outcome, RunFinding, TargetRecord
from vllm_harness._server.leases.allocation import INTERPRETER_GIB, expected_needs
from vllm_harness._server.progress import StartProgress


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


def shards_of(
    defects: Iterable[Defect],
    environments: Iterable[VllmUnderTest],
    known: Container[tuple[str, str]] = (),
) -> list[Shard[Measured]]:
    """What an executor runs of defects on environments, but for the ids and environments that are known."""
    jobs = jobs_of(defects)
    shards = []
    for vllm in environments:
        for job in jobs:
            left = job.without({each.id for each in job.defects if (each.id, vllm.spec) in known})
            if left.reproducers:
                shards.append(_shard(vllm, left))
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
    """The verdicts of these defects of a job, where this runs."""
    here = vllm.here()
    left = job.without({each.id for each in job.defects if f"{vllm.spec} {each.id}" not in names})
    for defect, outcome in run_job(
        left, here.environment, progress=StartProgress(), one_of_many=here is not vllm
    ):
        measured = Measured.of(defect.id, vllm.spec, here.environment.vllm_version, outcome)
        yield f"{vllm.spec} {defect.id}", measured


def agrees(defect: Defect, measured: Measured) -> bool:
    """Whether a verdict is what the entry's versions say."""
    if measured.verdict == "not applicable":
        return True
    return measured.verdict == expected_verdict(defect, measured.version)


def expected_verdict(defect: Defect, version: str) -> Verdict:
    """What the entry says of a version."""
    return "reproduced" if defect.holds_for(version) else "fixed"


def target_of(measured: Measured) -> TargetRecord:
    """The vLLM that was asked."""
    return TargetRecord(
        id=measured.vllm or measured.version, title="vLLM", vllm=measured.vllm or measured.version
    )


def case_of(defect: Defect, measured: Measured) -> CaseRecord:
    """The defect on that vLLM: known where it shows as its entry says, a finding where it does not."""
    agreed = agrees(defect, measured)
    says = f"the entry says {expected_verdict(defect, measured.version)}, and it is {measured.verdict}"
    reason = measured.why if agreed else ": ".join(filter(None, (says, measured.why)))
    return CaseRecord(
        id=measured.id,
        target=target_of(measured).id,
        group=defect.kind,
        title=defect.title,
        outcome=_outcome(measured) if agreed else Outcome.FINDING,
        defects=(measured.id,) if measured.verdict == "reproduced" else (),
        reason=reason,
        details=json.dumps(measured.answers, indent=1, ensure_ascii=False) if measured.answers else "",
        findings=() if agreed else (RunFinding(message=says),),
    )


def _outcome(measured: Measured) -> Outcome:
    """Of a verdict that is as the entry says."""
    if measured.verdict == "not applicable":
        return Outcome.SKIPPED
    return Outcome.KNOWN if measured.verdict == "reproduced" else Outcome.PASSED
