"""Reproduces a cost defect: measures the curve that shows it, in process or over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from packaging.version import Version

from vllm_harness._configuration.model_entries import Frontend, ModelEntry
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.parser_cases import cases_of, documents
from vllm_harness._defects.repro.verdict import Reproduction, Sign, reproduction_of
from vllm_harness._environments.spec import Environment
from vllm_harness._exchange.delivery import Delivery
from vllm_harness._protocol.core.events import Json
from vllm_harness._regression.cases.case import Case
from vllm_harness._regression.engines.answer import CaseAnswer, Curve
from vllm_harness._regression.engines.in_process import OLDEST
from vllm_harness._regression.engines.plan import DELIVERIES
from vllm_harness._regression.results.judge import cost_mismatches, judge
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._regression.results.selections import Failure, FailureSelection, selections_of
from vllm_harness._scripted.families import Family, entry_of, load_families
from vllm_harness._server.progress import StartProgress
from vllm_harness.extras.costs.curves import memory_exponent, time_exponent
from vllm_harness.extras.costs.in_process import measure_all
from vllm_harness.extras.costs.over_http import measure_served

IN_PROCESS = "parsers in process"
COST_S = 4.0
"""The CPU seconds for a curve in process, more than in a regression run: some growth needs long answers."""


@dataclass(frozen=True)
class CostCase:
    """The measurement that reproduces a cost defect.

    Attributes:
        defect: the defect's entry.
        selection: the failures that show the defect.
        family: the family whose parsers are measured.
        case: the growing case, with the deliveries to measure.
    """

    defect: Defect
    selection: FailureSelection
    family: Family
    case: Case

    frontend: ClassVar[Frontend] = "python"

    @property
    def place(self) -> str:
        """Where the cost is measured: on a server for the family, or in an interpreter for all families."""
        return f"the cost of {self.family.name}" if self.is_served else IN_PROCESS

    @property
    def entry(self) -> ModelEntry | None:
        """The stand-in of the family; None if the cost is measured in process."""
        return entry_of(self.family) if self.is_served else None

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """The deliveries to measure, in order."""
        return self.case.input.deliveries

    @property
    def is_served(self) -> bool:
        """Whether the measurement needs a server."""
        return any(delivery.api for delivery in self.deliveries)

    @staticmethod
    def reproduce(
        alike: Sequence[CostCase], environment: Environment, progress: StartProgress
    ) -> Iterator[tuple[Defect, Reproduction]]:
        """Reproduces defects with the same `place`: a single one on a server, or any number in process."""
        first = alike[0]
        if first.is_served:
            answers = measure_served(environment, first.family, [first.case.input], _is_wrong)
            yield first.defect, first.verdict_of(list(answers))
        elif Version(environment.vllm_version) < Version(OLDEST):
            why = f"parsers can be driven in process only from vLLM {OLDEST} on"
            yield from ((cost.defect, Reproduction("not applicable", why)) for cost in alike)
        else:
            longer = {"cpu_s": COST_S}
            case_sets = [(cost.family, [cost.case.input.model_copy(update=longer)]) for cost in alike]
            for answers_of_one in measure_all(environment, case_sets):
                cost = alike[answers_of_one[0].case_set]
                yield cost.defect, cost.verdict_of(answers_of_one)

    def verdict_of(self, answers: Sequence[CaseAnswer]) -> Reproduction:
        """The verdict from the curves, or from the errors instead of curves."""
        return reproduction_of(self._signs(answers), documents(answers))

    def _signs(self, answers: Sequence[CaseAnswer]) -> Iterator[Sign]:
        for answer, mismatches in judge(self.case, answers):
            delivery = answer.delivery
            if delivery is None:
                yield Sign(lacking=str(answer.error))
                continue
            yield Sign(
                shows=any(self._explains(delivery, mismatch) for mismatch in mismatches),
                faults=tuple(f"{delivery} {mismatch}" for mismatch in mismatches),
                case=self.case.name,
                delivery=delivery.code,
            )

    def _explains(self, delivery: Delivery, mismatch: Mismatch) -> bool:
        return self.selection.explains(Failure(self.family.name, "cost", self.case.name, delivery, mismatch))


def cost_case(defect: Defect) -> CostCase | None:
    """The measurement for a defect; None if its entry names no existing case in the group `cost`."""
    for selection in selections_of(defect):
        if selection.groups[0] != "cost":
            continue
        family = load_families()[selection.families[0]]
        for case in cases_of("cost", family.name):
            if case.name == selection.case:
                input_ = case.input.model_copy(update={"deliveries": _deliveries(selection)})
                return CostCase(defect, selection, family, replace(case, input=input_))
    return None


def curve_table(document: Json) -> Iterator[str]:
    """Formats an answer's curve as a Markdown table, with the powers by which time and memory grow.

    Args:
        document: an answer with a curve, as a reproduction stores it.
    """
    curve = Curve.model_validate(document["curve"])
    yield "| tokens | CPU time | times the previous | longest step | memory at most |"
    yield "|---:|---:|---:|---:|---:|"
    previous = 0.0
    for point in curve.points:
        times = f"{point.cpu_s / previous:.1f}" if previous else ""
        memory = f"{point.peak_bytes / 1e6:.1f} MB" if point.peak_bytes else ""
        yield f"| {point.size:,} | {_ms(point.cpu_s)} | {times} | {_ms(point.longest_s)} | {memory} |"
        previous = point.cpu_s
    if curve.stopped_at is not None:
        yield f"| {curve.stopped_at:,} | stopped, took too long | | | |"
    if power := time_exponent(curve):
        yield f"\nThe CPU time grows with the power {power:.2f} of the length."
    if power := memory_exponent(curve):
        yield f"\nThe memory grows with the power {power:.2f} of the length."


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms"


def _deliveries(selection: FailureSelection) -> tuple[Delivery, ...]:
    """The deliveries that the selection names, or the group's; only those in process if there are any."""
    named = selection.deliveries or DELIVERIES["in-process"]["cost"]
    return tuple(delivery for delivery in named if delivery.api is None) or named


def _is_wrong(answer: CaseAnswer) -> bool:
    return bool(cost_mismatches(answer))
