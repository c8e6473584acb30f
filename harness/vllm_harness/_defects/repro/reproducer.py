"""Chooses how each defect is reproduced, and groups defects that share a server."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._defects.entry import Defect, Frontend
from vllm_harness._defects.repro.verdict import Reproduction, Verdict
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness._extensions import COST_OF_DEFECT, MissingExtra, load
from vllm_harness._server.errors import StartupError, UnknownFlag, UnknownParser, UnsupportedArchitecture
from vllm_harness._server.progress import StartProgress

LACKING = (UnknownFlag, UnknownParser, UnsupportedArchitecture)


class Reproducer(Protocol):
    """Reproduces one defect: by its entry's steps, by a parser's test case, or by measuring costs."""

    @property
    def defect(self) -> Defect:
        """The entry of the defect."""

    @property
    def place(self) -> str:
        """The name of the server or interpreter, which reproducers of the same kind and place share."""

    @property
    def frontend(self) -> Frontend:
        """The HTTP front end that answers."""

    @property
    def entry(self) -> ModelEntry | None:
        """The model entry that its server serves; None if its parsers are driven in process."""

    @staticmethod
    def reproduce(
        alike: Sequence[Any], environment: Environment, progress: StartProgress
    ) -> Iterator[tuple[Defect, Reproduction]]:
        """Reproduces defects of the same kind that need the same server or interpreter.

        Raises:
            StartupError: a server does not start.
            InProcessError: vLLM cannot be imported.
            UsageError: both conditions of an entry, expected and actual, hold.
        """


def reproducer_of(defect: Defect) -> Reproducer | None:
    """Chooses the reproducer of a defect; None if its entry has neither steps nor a suitable test case.

    Each kind is imported only if an entry needs it.

    Raises:
        MissingExtra: the extra `costs`, which the entry needs, is not installed.
    """
    if defect.repro:
        from vllm_harness._defects.repro.steps import RequestedSteps

        return RequestedSteps(defect, defect.repro)
    if defect.failures and not defect.in_process:
        from vllm_harness._defects.repro.parser_cases import served_case

        if served := served_case(defect):
            return served
    if any(selector.groups[:1] == ("cost",) for selector in defect.failures):
        cost: Reproducer | None = load(COST_OF_DEFECT, defect.id)(defect)
        return cost
    return None


def is_reproducible(defect: Defect) -> bool:
    """Whether a defect can be reproduced with the extras that are installed."""
    try:
        return reproducer_of(defect) is not None
    except MissingExtra:
        return False


def checked(defect: Defect) -> Reproducer:
    """Chooses the reproducer of a defect; raises an error that says why if there is none.

    Raises:
        UsageError: the entry does not say how to reproduce it, or an extra that this needs is not installed.
    """
    if found := reproducer_of(defect):
        return found
    if defect.in_process:
        from vllm_harness._regression.results.selections import selections_of

        raise UsageError(
            f"{defect.id} needs a division into deltas that no server can be made to send",
            hint=f"reproduce it in process: {selections_of(defect)[0].command}",
        )
    raise UsageError(
        f"the entry of {defect.id} does not say how to reproduce it",
        hint=f"run the tests that show it: pytest tests -k ..., found by grep -r {defect.id} tests",
    )


@dataclass(frozen=True)
class Job:
    """One or more reproducers of one kind that share a server or an interpreter."""

    reproducers: tuple[Reproducer, ...]

    @property
    def first(self) -> Reproducer:
        """The first reproducer; the others need the same server, front end and model entry."""
        return self.reproducers[0]

    @property
    def defects(self) -> tuple[Defect, ...]:
        """The defects of the reproducers."""
        return tuple(reproducer.defect for reproducer in self.reproducers)

    def without(self, ids: Collection[str]) -> Job:
        """Returns the job without the defects with these ids."""
        return Job(tuple(one for one in self.reproducers if one.defect.id not in ids))


def jobs_of(defects: Iterable[Defect]) -> list[Job]:
    """Makes jobs for defects in a stable order; leaves out defects that cannot be reproduced."""
    by_place: dict[tuple[str, str], list[Reproducer]] = {}
    for defect in sorted(defects, key=lambda defect: defect.id):
        if found := reproducer_of(defect):
            by_place.setdefault((type(found).__name__, found.place), []).append(found)
    return [Job(tuple(alike)) for _, alike in sorted(by_place.items())]


def run_job(
    job: Job, environment: Environment, *, progress: StartProgress, one_of_many: bool = False
) -> Iterator[tuple[Defect, Reproduction]]:
    """Reproduces the defects of a job.

    Args:
        job: the job.
        environment: the vLLM environment.
        progress: shows the progress of server starts.
        one_of_many: whether other machines can run the job; errors caused by this machine are then raised.

    Raises:
        StartupError: a server does not start because of this machine, and `one_of_many` is true.
        InProcessError, UsageError: as in `Reproducer.reproduce`.
    """
    if job.first.frontend not in environment.frontends:
        lacking = f"{environment.describe()} has no {job.first.frontend} front end"
        yield from ((defect, Reproduction("not applicable", lacking)) for defect in job.defects)
        return
    try:
        yield from job.first.reproduce(job.reproducers, environment, progress)
    except StartupError as error:
        if error.of_machine and one_of_many:
            raise
        verdict: Verdict = "not applicable" if isinstance(error, LACKING) else "other failure"
        for defect in job.defects:
            yield defect, Reproduction(verdict, error.message)
