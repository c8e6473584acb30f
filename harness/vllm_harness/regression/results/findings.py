"""What is wrong in vLLM, by root cause: findings.yaml says which failures of a matrix each one explains."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, model_validator

from vllm_harness.files.strict import StrictModel
from vllm_harness.regression.cases.questions import Group, unforced
from vllm_harness.regression.results.results import Cell
from vllm_harness.scripted.families import REAL

FILE = Path(__file__).with_name("findings.yaml")
Verdict = Literal["true", "arguable"]
LIKE = {
    "chat": "whole",
    "responses": "whole",
    "chat stream": "1",
    "responses stream": "1",
    "chat stream, stop": "late",
    "chat, 3 a chunk": "3",
    "chat, one chunk": "0+end",
    "chat, alone": "whole",
    "chat stream, alone": "1",
    "chat stream, together": "random",
}
"""Way of asking a server -> the way of parsing in process that it is like."""


class Finding(StrictModel):
    """One root cause.

    Attributes:
        name: unique.
        verdict: `true`, or `arguable` where the format's documentation leaves it open.
        reference: upstream issue or pull request, or `unreported`.
        versions: those of 0.30.0, 0.31.0, 0.32.0 and 0.33.0@0.32.0 that show it; what only servers show was
            asked of 0.32.0 alone.
        served: whether only servers show it.
        why: what goes wrong, and why that is wrong.
        families: whose failures it explains.
        case: the smallest one that shows it.
        groups: of the cases; `case` is of the first.
        cases, ways, wrong: which failures of those families it explains, cases by shell patterns, for those
            of the group forced without what the request forces; none: any.
            A way of parsing in process stands for what is like it over HTTP, too.
    """

    name: str
    verdict: Verdict
    reference: str
    versions: tuple[str, ...] = Field(min_length=1)
    served: bool = False
    why: str
    families: tuple[str, ...]
    case: str
    groups: tuple[Group, ...] = ("canonical", "forced", "chunks", "malformed", "load")
    cases: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What shows it again."""
        told = ["--parsers", self.families[0], "--cases", self.groups[0], "--only", self.case]
        return shlex.join(["vllm-harness", "matrix", *told, *(("--engine", "http") if self.served else ())])

    def explains(self, failure: Failure) -> bool:
        """Whether a failure is one of its."""
        name = unforced(failure.case) if failure.group == "forced" else failure.case
        return (
            failure.family.removesuffix(REAL) in self.families
            and failure.group in self.groups
            and (not self.cases or any(fnmatchcase(name, case) for case in self.cases))
            and (not self.ways or failure.way in self.ways or failure.asked in self.ways)
            and (not self.wrong or failure.wrong in self.wrong)
        )


class Findings(StrictModel):
    """The whole file."""

    findings: tuple[Finding, ...]

    @model_validator(mode="after")
    def _names(self) -> Findings:
        names = [finding.name for finding in self.findings]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two findings are named {min(twice)!r}")
        return self


@dataclass(frozen=True)
class Failure:
    """One thing wrong with one case, `asked` in one way; `way` is what that is like in process."""

    family: str
    group: str
    case: str
    asked: str
    way: str
    wrong: str


@dataclass
class Explained:
    """A run's failures by what explains them.

    Attributes:
        seen: finding's name -> where it showed, as (environment, engine) -> how many failures.
        unexplained: (environment, engine, failure) without a finding.
    """

    seen: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    unexplained: list[tuple[str, str, Failure]] = field(default_factory=list)


@cache
def load_findings(path: Path = FILE) -> tuple[Finding, ...]:
    """Reads the findings; raises pydantic's ValidationError, naming the key, where the file is malformed."""
    return Findings.model_validate(yaml.safe_load(path.read_text())).findings


def explain(findings: Iterable[Finding], cells: Iterable[Cell]) -> Explained:
    """Sorts the failures of cells by the first finding that explains each."""
    known = list(findings)
    told = Explained()
    for cell in cells:
        place = (cell.environment, cell.engine)
        for failure in _failures(cell):
            of = next((finding for finding in known if finding.explains(failure)), None)
            if of is None:
                told.unexplained.append((*place, failure))
            else:
                counts = told.seen.setdefault(of.name, {})
                counts[place] = counts.get(place, 0) + 1
    return told


def _failures(cell: Cell) -> Iterator[Failure]:
    for name, case in cell.cases.items():
        for way, kinds in case.wrong.items():
            for kind in kinds:
                yield Failure(cell.family, cell.group, name, way, LIKE.get(way, way), kind)
