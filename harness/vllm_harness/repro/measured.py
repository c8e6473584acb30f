"""The verdicts of many defects on many versions: JSON lines, written as they come; a run can go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from pydantic import Field, ValidationError

from vllm_harness.defects.entry import Defect
from vllm_harness.errors import HarnessError, UsageError
from vllm_harness.files.strict import StrictModel
from vllm_harness.protocol.core.events import Json
from vllm_harness.regression.run import VllmUnderTest
from vllm_harness.repro.run import Job, jobs_of, run_job
from vllm_harness.repro.verdict import Reproduction, Verdict
from vllm_harness.server.leases.side_by_side import side_by_side
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
        found = {}
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for number, line in enumerate(lines, start=1):
            try:
                measured = Measured.model_validate_json(line)
            except ValidationError as error:
                if number == len(lines):  # the last line of a run that was killed
                    break
                hint = "remove the line; it is measured again"
                raise UsageError(f"{self.path}:{number}: no verdict of a run", hint=hint) from error
            found[measured.id, measured.vllm] = measured
        return found

    def write(self, measured: Measured) -> None:
        """Adds a verdict."""
        line = measured.model_dump_json(exclude_defaults=True) + "\n"
        with self._lock:
            self._without_cut_line()
            with self.path.open("a") as file:
                file.write(line)

    def _without_cut_line(self) -> None:
        """Before the first write: ends the file at its last whole line, as a run that was killed left it."""
        if self._is_whole:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            whole, newline, _ = self.path.read_bytes().rpartition(b"\n")
            self.path.write_bytes(whole + newline)
        self._is_whole = True


def measure(
    run: MeasuredRun,
    defects: Iterable[Defect],
    environments: Sequence[VllmUnderTest],
    *,
    parallel: int,
    progress: StartProgress,
    done: Callable[[Measured], None],
) -> list[HarnessError]:
    """Reproduces what the run has no verdict of yet, jobs side by side; returns the errors of failed ones."""
    left = unmeasured(run, defects, environments)

    def run_one(vllm: VllmUnderTest, job: Job) -> None:
        for defect, outcome in run_job(job, vllm.environment, progress=progress):
            measured = Measured.of(defect.id, vllm.spec, vllm.environment.vllm_version, outcome)
            run.write(measured)
            done(measured)

    return side_by_side([partial(run_one, vllm, job) for vllm, job in left], parallel)


def unmeasured(
    run: MeasuredRun, defects: Iterable[Defect], environments: Sequence[VllmUnderTest]
) -> list[tuple[VllmUnderTest, Job]]:
    """The jobs of a run, each with the defects that have no verdict yet."""
    known = run.verdicts()
    jobs = jobs_of(defects)
    left = []
    for vllm in environments:
        for job in jobs:
            steps = tuple(each for each in job.steps if (each.id, vllm.spec) not in known)
            cases = tuple(each for each in job.cases if (each[0].id, vllm.spec) not in known)
            if steps or cases:
                left.append((vllm, replace(job, steps=steps, cases=cases)))
    return left


def agrees(defect: Defect, measured: Measured) -> bool:
    """Whether a verdict is what the entry's versions say."""
    if measured.verdict == "not applicable":
        return True
    return measured.verdict == expected_verdict(defect, measured.version)


def expected_verdict(defect: Defect, version: str) -> Verdict:
    """What the entry says of a version."""
    return "reproduced" if defect.holds_for(version) else "fixed"
