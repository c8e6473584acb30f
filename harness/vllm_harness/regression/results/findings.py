"""What is wrong in vLLM, by root cause: findings.yaml has which failures of a run each entry explains."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, model_validator

from vllm_harness.files.strict import StrictModel
from vllm_harness.regression.cases.case import DEFAULT_GROUPS, Group
from vllm_harness.regression.cases.delivery import Delivery, DeliveryField, Shape
from vllm_harness.regression.cases.groups import unforced
from vllm_harness.regression.engines.plan import Engine, like_in_process
from vllm_harness.regression.results.cells import Cell
from vllm_harness.regression.results.mismatches import Mismatch, MismatchField
from vllm_harness.scripted.families import REAL

FILE = Path(__file__).with_name("findings.yaml")
FindingVerdict = Literal["defect", "arguable"]


class ParserFinding(StrictModel):
    """One root cause.

    Attributes:
        name: unique.
        verdict: `defect`, or `arguable` where the format's documentation leaves it open.
        reference: upstream issue or pull request, or `unreported`.
        versions: those of 0.30.0, 0.31.0, 0.32.0 and 0.33.0@0.32.0 that show it; what only servers show was
            run on 0.32.0 alone.
        served: whether only servers show it.
        why: what goes wrong, and why that is wrong.
        families: whose failures it explains.
        case: the smallest one that shows it.
        groups: of the cases; `case` is of the first.
        cases, deliveries, mismatches: which failures of those families it explains, cases by shell patterns,
            for those of the group forced without what the request forces; none: any.
            A delivery in process stands for the one that is like it over HTTP, too.
    """

    name: str
    verdict: FindingVerdict
    reference: str
    versions: tuple[str, ...] = Field(min_length=1)
    served: bool = False
    why: str
    families: tuple[str, ...]
    case: str
    groups: tuple[Group, ...] = (*DEFAULT_GROUPS, "load")
    cases: tuple[str, ...] = ()
    deliveries: tuple[DeliveryField, ...] = ()
    mismatches: tuple[MismatchField, ...] = ()

    @property
    def command(self) -> str:
        """What shows it again."""
        chosen = ["--parsers", self.families[0], "--cases", self.groups[0], "--only", self.case]
        engine = ("--engine", "http") if self.served else ()
        return shlex.join(["vllm-harness", "regression", *chosen, *engine])

    def explains(self, failure: Failure) -> bool:
        """Whether a failure is one of its."""
        return failure.plain_family in self.families and self._fits(failure)

    def is_like(self, failure: Failure) -> bool:
        """Whether it names the mismatch of a failure in such a case, for other families."""
        return bool(self.mismatches) and failure.plain_family not in self.families and self._fits(failure)

    def _fits(self, failure: Failure) -> bool:
        name = unforced(failure.case) if failure.group == "forced" else failure.case
        return (
            failure.group in self.groups
            and (not self.cases or any(fnmatchcase(name, case) for case in self.cases))
            and (not self.deliveries or not {failure.delivery, failure.like}.isdisjoint(self.deliveries))
            and (not self.mismatches or failure.mismatch in self.mismatches)
        )


class ParserFindings(StrictModel):
    """The whole file."""

    findings: tuple[ParserFinding, ...]

    @model_validator(mode="after")
    def _names(self) -> ParserFindings:
        names = [finding.name for finding in self.findings]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two findings are named {min(repeated)!r}")
        return self


@dataclass(frozen=True)
class Failure:
    """One mismatch of one case in one delivery."""

    family: str
    group: Group
    case: str
    delivery: Delivery
    mismatch: Mismatch

    @property
    def plain_family(self) -> str:
        """The family, on whichever tokenizer."""
        return self.family.removesuffix(REAL)

    @property
    def like(self) -> Delivery:
        """The delivery in process that its own is like."""
        return like_in_process(self.delivery)

    @property
    def alternatives(self) -> Iterator[Failure]:
        """The failure, and where a server streamed it, the same with its tokens in other cuts.

        A server's API process that lags behind the engine, as under load, has several tokens in one delta.
        """
        yield self
        if self.delivery.api is not None and self.delivery.is_streamed:
            yield replace(self, delivery=Delivery(Shape.RANDOM_CUTS))


@dataclass
class ExplainedFailures:
    """A run's failures by what explains them.

    Attributes:
        counts: finding's name -> where it showed, as (environment, engine) -> how many failures.
        unexplained: (environment, engine, failure) without a finding.
    """

    counts: dict[str, dict[tuple[str, Engine], int]] = field(default_factory=dict)
    unexplained: list[tuple[str, Engine, Failure]] = field(default_factory=list)


@cache
def load_findings(path: Path = FILE) -> tuple[ParserFinding, ...]:
    """Reads the findings; raises pydantic's ValidationError, naming the key, where the file is malformed."""
    return ParserFindings.model_validate(yaml.safe_load(path.read_text())).findings


def explain(findings: Iterable[ParserFinding], cells: Iterable[Cell]) -> ExplainedFailures:
    """Sorts the failures of cells by the first finding that explains each."""
    known = list(findings)
    explained = ExplainedFailures()
    for cell in cells:
        place = (cell.environment, cell.engine)
        for failure in _failures(cell):
            explaining = (
                finding for each in failure.alternatives for finding in known if finding.explains(each)
            )
            finding = next(explaining, None)
            if finding is None:
                explained.unexplained.append((*place, failure))
            else:
                counts = explained.counts.setdefault(finding.name, {})
                counts[place] = counts.get(place, 0) + 1
    return explained


def known_elsewhere(
    findings: Iterable[ParserFinding], failures: Sequence[Failure]
) -> list[tuple[ParserFinding, list[Failure]]]:
    """The findings of other families that are like failures, those that name cases and explain most first."""
    alike = [(finding, [failure for failure in failures if finding.is_like(failure)]) for finding in findings]
    return sorted(
        ((finding, found) for finding, found in alike if found),
        key=lambda pair: (not pair[0].cases, -len(pair[1])),
    )


def _failures(cell: Cell) -> Iterator[Failure]:
    for name, case in cell.cases.items():
        for delivery, mismatches in case.mismatches.items():
            for mismatch in mismatches:
                yield Failure(cell.family, cell.group, name, delivery, mismatch)
