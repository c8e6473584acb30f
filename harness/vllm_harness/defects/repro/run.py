"""Reproduces defects of the registry on real servers of one environment, as many to a server as it serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import jmespath

from vllm_harness import extensions
from vllm_harness.configuration.model_entries import ModelEntry, load_models
from vllm_harness.defects.entry import Defect, Frontend, Repro
from vllm_harness.defects.repro.parser_cases import ServedCase, reproduce_on, served_case
from vllm_harness.defects.repro.send import answers_to
from vllm_harness.defects.repro.verdict import Reproduction, Verdict
from vllm_harness.environments.spec import Environment
from vllm_harness.errors import UsageError
from vllm_harness.exchange.endpoint import Endpoint
from vllm_harness.protocol.core.events import Json
from vllm_harness.regression.results.explained import parser_defects
from vllm_harness.scripted.book import BookError
from vllm_harness.scripted.families import Family, entry_of, load_families
from vllm_harness.server.errors import StartupError, UnknownFlag, UnknownParser, UnsupportedArchitecture
from vllm_harness.server.progress import StartProgress
from vllm_harness.server.remote import RemoteServer

NO_SCRIPT = "the model said something else than its script: over this API this vLLM takes none"
IN_PROCESS = "parsers in process"
LACKING = (UnknownFlag, UnknownParser, UnsupportedArchitecture)
ServerKey = tuple[str, str, Frontend, tuple[str, ...], tuple[tuple[str, str], ...]]


class Cost(Protocol):
    """What an answer costs, as the extra `costs` measures it."""

    @property
    def family(self) -> Family:
        """Whose parsers are measured."""

    @property
    def is_served(self) -> bool:
        """Whether only a server shows it."""


@dataclass(frozen=True)
class Job:
    """Defects that share a server.

    Attributes:
        name: of the server, for people.
        frontend: that answers.
        steps: those whose entry has steps.
        cases: those of a family's parsers, each with what is requested for it.
        costs: those of what an answer costs, each with what is measured for it.
    """

    name: str
    frontend: Frontend = "python"
    steps: tuple[Defect, ...] = ()
    cases: tuple[tuple[Defect, ServedCase], ...] = ()
    costs: tuple[tuple[Defect, Cost], ...] = ()

    @property
    def defects(self) -> tuple[Defect, ...]:
        """All of its defects."""
        return *self.steps, *(defect for defect, _ in (*self.cases, *self.costs))


def jobs_of(defects: Iterable[Defect]) -> list[Job]:
    """The servers that defects need, in a stable order; those that cannot be shown are in none.

    What is measured in process shares an interpreter.
    """
    by_server: dict[ServerKey, list[Defect]] = {}
    by_family: dict[tuple[str, Frontend], list[tuple[Defect, ServedCase]]] = {}
    by_place: dict[str, list[tuple[Defect, Cost]]] = {}
    for defect in sorted(defects, key=lambda defect: defect.id):
        found = case_or_cost_of(defect)
        if defect.repro:
            by_server.setdefault(_server_of(defect.repro), []).append(defect)
        elif isinstance(found, ServedCase):
            key = found.family.name, found.selection.frontend
            by_family.setdefault(key, []).append((defect, found))
        elif found:
            place = f"the cost of {found.family.name}" if found.is_served else IN_PROCESS
            by_place.setdefault(place, []).append((defect, found))
    steps = [Job(_named(key), key[2], steps=tuple(alike)) for key, alike in sorted(by_server.items())]
    cases = [
        Job(_named(("", name, frontend, (), ())), frontend, cases=tuple(alike))
        for (name, frontend), alike in sorted(by_family.items())
    ]
    costs = [Job(place, costs=tuple(alike)) for place, alike in sorted(by_place.items())]
    return [*steps, *cases, *costs]


def is_reproducible(defect: Defect) -> bool:
    """Whether requests to one server show it, or its parsers in process, with what is installed."""
    if defect.repro or case_of(defect):
        return True
    return extensions.installed("costs") and cost_of(defect) is not None


def checked(defect: Defect) -> Defect:
    """The defect.

    Raises:
        UsageError: its entry does not say how to reproduce it, or an extra that it needs is not installed.
    """
    if defect.repro or case_or_cost_of(defect):
        return defect
    if defect.in_process:
        raise UsageError(
            f"{defect.id} takes a division into deltas that no server makes at will",
            hint=f"see it in process: {_command(defect)}",
        )
    raise UsageError(
        f"the entry of {defect.id} does not say how to reproduce it",
        hint=f"run the tests that show it: pytest tests -k ..., found by grep -r {defect.id} tests",
    )


def run_job(
    job: Job, environment: Environment, *, progress: StartProgress, one_of_many: bool = False
) -> Iterator[tuple[Defect, Reproduction]]:
    """Reproduces the defects of a job.

    Args:
        progress: of the starts of servers.
        one_of_many: whether there are other machines, so that what this one is to blame for is raised.

    Raises:
        StartupError: the machine is to blame, and there are others.
        InProcessError: vLLM does not import.
        UsageError: the two conditions of an entry hold at once.
    """
    if job.frontend not in environment.frontends:
        lacking = f"{environment.describe()} has no {job.frontend} front end"
        yield from ((defect, Reproduction("not applicable", lacking)) for defect in job.defects)
        return
    try:
        if job.cases:
            yield from reproduce_on(environment, job.cases)
        elif job.costs:
            yield from extensions.load(extensions.COST_ON)(environment, job.costs)
        else:
            yield from _by_steps(job.steps, environment, progress)
    except StartupError as error:
        if error.of_machine and one_of_many:
            raise
        verdict: Verdict = "not applicable" if isinstance(error, LACKING) else "other failure"
        for defect in job.defects:
            yield defect, Reproduction(verdict, error.message)


def _by_steps(
    defects: tuple[Defect, ...], environment: Environment, progress: StartProgress
) -> Iterator[tuple[Defect, Reproduction]]:
    plan = defects[0].repro
    assert plan is not None
    with RemoteServer(
        entry_served(plan),
        lane="scripted",
        vllm=environment,
        frontend=plan.frontend,
        args=plan.args,
        env=plan.env,
        progress=progress,
    ) as server:
        for defect in defects:
            yield defect, on_server(defect, server.endpoint, server.entry, server.model)


def entry_served(plan: Repro) -> ModelEntry:
    """What is served: a model entry, or the stand-in of a family."""
    return entry_of(load_families()[plan.family]) if plan.family else load_models().get(plan.model)


def entry_of_job(job: Job) -> ModelEntry | None:
    """What the server of a job serves; None: it has none, its parsers are driven in process."""
    if job.costs:
        _, cost = job.costs[0]
        return entry_of(cost.family) if cost.is_served else None
    if job.steps:
        plan = job.steps[0].repro
        assert plan is not None
        return entry_served(plan)
    _, case = job.cases[0]
    return entry_of(case.family)


def on_server(defect: Defect, endpoint: Endpoint, entry: ModelEntry, model: str) -> Reproduction:
    """Sends a defect's requests to a running server, which has to have the entry's flags.

    Args:
        defect: with steps.
        endpoint: of the server.
        entry: the model entry, by whose dialect a meaning is written.
        model: the name that the server goes by.
    """
    plan = defect.repro
    assert plan is not None
    try:
        answers = answers_to(plan.steps, endpoint, entry, model)
    except BookError as error:
        return Reproduction("not applicable", error.message)
    verdict = verdict_of(defect.id, plan, answers)
    if verdict == "other failure" and any("unscripted" in answer for answer in answers):
        return Reproduction("not applicable", NO_SCRIPT, answers=answers)
    broken = next((str(answer["broken"]) for answer in answers if "broken" in answer), "")
    return Reproduction(verdict, broken if verdict == "other failure" else "", answers=answers)


def verdict_of(defect: str, plan: Repro, answers: list[Json]) -> Verdict:
    """What the answers say. Raises UsageError where both conditions of the entry hold."""
    whole = {**answers[-1], "steps": answers}
    right, wrong = (_holds(condition, whole) for condition in (plan.expected, plan.actual))
    if right and wrong:
        raise UsageError(f"{defect}: the answer meets both conditions of its entry, expected and actual")
    return "fixed" if right else "reproduced" if wrong else "other failure"


def _holds(condition: str, answer: Json) -> bool:
    try:
        return jmespath.search(condition, answer) is True
    except jmespath.exceptions.JMESPathTypeError:
        return False


def case_or_cost_of(defect: Defect) -> ServedCase | Cost | None:
    """What is requested or measured for a defect; None: its entry has steps of its own, or says neither."""
    return None if defect.repro else case_of(defect) or cost_of(defect)


def case_of(defect: Defect) -> ServedCase | None:
    """What is requested for a defect of a parser; None where no server shows it, or there is no case."""
    if defect.in_process:
        return None
    return next((found for each in parser_defects({defect.id: defect}) if (found := served_case(each))), None)


def cost_of(defect: Defect) -> Cost | None:
    """What is measured for a defect; None: it is not about what an answer costs.

    Raises:
        MissingExtra: it is, and the extra `costs` is not installed.
    """
    for known in parser_defects({defect.id: defect}):
        if any(selection.groups[0] == "cost" for selection in known.selections):
            cost: Cost | None = extensions.load(extensions.COST_OF_DEFECT, defect.id)(known)
            return cost
    return None


def _command(defect: Defect) -> str:
    (known,) = parser_defects({defect.id: defect})
    return known.selections[0].command


def _server_of(plan: Repro) -> ServerKey:
    return plan.model, plan.family, plan.frontend, plan.args, tuple(sorted(plan.env.items()))


def _named(key: ServerKey) -> str:
    model, family, frontend, args, env = key
    variables = [f"{name}={value}" for name, value in env]
    served = model or f"family {family}"
    return " ".join([served, *(["rust"] if frontend == "rust" else []), *args, *variables])
