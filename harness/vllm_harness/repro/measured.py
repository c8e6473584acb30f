"""The verdicts of many defects on many versions: JSON lines, written as they come; a run can go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from packaging.version import Version
from pydantic import Field, ValidationError

from vllm_harness.defects.entry import Defect
from vllm_harness.environments.spec import Environment
from vllm_harness.errors import HarnessError, UsageError
from vllm_harness.files.strict import StrictModel
from vllm_harness.protocol.core.events import Json
from vllm_harness.repro.run import Job, jobs_of, run_job
from vllm_harness.repro.verdict import Reproduction, Verdict
from vllm_harness.server.leases.claims import own_task
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


@dataclass(frozen=True)
class VllmUnderTest:
    """A vLLM: the environment as in `--vllm`, and resolved."""

    spec: str
    environment: Environment


class MeasuredRun:
    """The folder of a run.

    Args:
        folder: where `verdicts.jsonl` stands, or is to stand.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "verdicts.jsonl"
        self._lock = threading.Lock()

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
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(measured.model_dump_json(exclude_defaults=True) + "\n")


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
        with own_task(f"{vllm.spec} {job.name}"):
            for defect, outcome in run_job(job, vllm.environment, progress=progress):
                version = vllm.environment.vllm_version
                measured = Measured.of(defect.id, vllm.spec, version, outcome)
                run.write(measured)
                done(measured)

    errors = []
    with ThreadPoolExecutor(parallel) as pool:
        for future in as_completed([pool.submit(run_one, vllm, job) for vllm, job in left]):
            try:
                future.result()
            except HarnessError as error:
                errors.append(error)
    return errors


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


def versions_of(measured: Mapping[Version, Verdict]) -> str | None:
    """The specifier of the versions that show a defect; None where a verdict is neither reproduced nor fixed.

    Args:
        measured: verdicts by version; those between two that were measured are taken to be as the lower.
    """
    if set(measured.values()) - {"reproduced", "fixed", "not applicable"}:
        return None
    ordered = sorted(version for version, verdict in measured.items() if verdict != "not applicable")
    showing = [version for version in ordered if measured[version] == "reproduced"]
    if not showing:
        return None
    parts = [f">={_short(showing[0])}"]
    for version in ordered:
        if version > showing[-1]:
            parts.append(f"<{_short(version)}")
            break
        if showing[0] < version and measured[version] == "fixed":
            parts.append(f"!={_short(version)}.*")
    return ",".join(parts)


def _short(version: Version) -> str:
    return f"{version.major}.{version.minor}"
