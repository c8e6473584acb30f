"""A run's results by family, group and vLLM (cells), stored one by one so that a run can resume."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from vllm_harness._configuration.model_entries import Frontend
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._exchange.delivery import DeliveryField
from vllm_harness._files.paths import run_folder
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.case import Group, Topic
from vllm_harness._regression.engines.answer import Curve
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.results.mismatches import MismatchField

CURVES = ".curves"


class CaseVerdict(StrEnum):
    """Whether a case passed, failed, was left out, or ran without an answer that could be judged."""

    PASSED = "passed"
    FAILED = "failed"
    LEFT_OUT = "left_out"
    NOT_JUDGED = "not_judged"


class AnswersNotJudged(HarnessError):
    """The Python front end did not deliver answers as the harness makes it deliver."""


class CaseResult(StrictModel):
    """The result of one test case in a cell.

    Attributes:
        topic: the subject of the case.
        text: the text that the model generates; empty if the case was left out.
        left_out: why the case was left out; None if it ran.
        mismatches: delivery -> mismatches; deliveries without a mismatch are omitted.
        examples: delivery -> the first answer with a mismatch; over HTTP, the first answer in any case.
        expected: delivery -> what should have come instead of an example with a mismatch.
        digests: delivery -> digest of the answer, for cases with one answer per delivery.
        deliveries: the number of deliveries in which the case was judged.
        not_held: delivery -> why the case was not judged in it: vLLM merged tokens of the answer.
        curves: delivery -> the cost measured at growing lengths of the answer.
    """

    topic: Topic
    text: str = ""
    left_out: str | None = None
    mismatches: dict[DeliveryField, tuple[MismatchField, ...]] = Field(default_factory=dict)
    examples: dict[DeliveryField, str] = Field(default_factory=dict)
    expected: dict[DeliveryField, str] = Field(default_factory=dict)
    digests: dict[DeliveryField, str] = Field(default_factory=dict)
    deliveries: int = 0
    not_held: dict[DeliveryField, str] = Field(default_factory=dict)
    curves: dict[DeliveryField, Curve] = Field(default_factory=dict)

    @property
    def verdict(self) -> CaseVerdict:
        """Whether the case passed, failed, was left out, or could not be judged in any delivery."""
        if self.left_out:
            return CaseVerdict.LEFT_OUT
        if self.not_held and not self.deliveries:
            return CaseVerdict.NOT_JUDGED
        return CaseVerdict.FAILED if self.mismatches else CaseVerdict.PASSED

    @property
    def is_judged(self) -> bool:
        """Whether the case passed or failed."""
        return self.verdict in (CaseVerdict.PASSED, CaseVerdict.FAILED)


class Cell(StrictModel):
    """The results of one family and one group of cases on one vLLM.

    Attributes:
        environment: the spec, as in `--vllm`, with the front end if it is not the Python front end.
        described: the full description of the server environment.
        family, group, tool_parser, reasoning_parser, tokenizer: what was run.
        engine: `in-process` for parser objects in vLLM's interpreter, `http` for a server.
        frontend: the server's HTTP front end.
        seconds: how long the cell took, including the start of a server.
        cases_digest: a digest of the cases and deliveries; if it changes, the cell runs again.
        start_error: why vLLM could not make the parsers, or why the server did not start.
        cases: the results by case name.
    """

    model_config = ConfigDict(extra="ignore")  # files of earlier versions have an additional field

    environment: str
    described: str
    family: str
    group: Group
    tool_parser: str | None
    reasoning_parser: str | None
    tokenizer: Literal["real", "synthetic"]
    engine: Engine
    frontend: Frontend = "python"
    cases_digest: str
    seconds: float = 0.0
    start_error: str | None = None
    cases: dict[str, CaseResult] = Field(default_factory=dict)

    def count(self, verdict: CaseVerdict) -> int:
        """Returns the number of cases with this verdict."""
        return sum(case.verdict == verdict for case in self.cases.values())


def not_judged(cells: Iterable[Cell]) -> list[str]:
    """Lists the answers that were not judged, each with its place and the reason."""
    return [
        f"{cell.family}, {cell.group}, {name}, {delivery}: {why}"
        for cell in cells
        for name, case in cell.cases.items()
        for delivery, why in case.not_held.items()
    ]


def raise_if_not_judged(cells: Iterable[Cell]) -> None:
    """Raises AnswersNotJudged if the Python front end merged tokens; the Rust front end may."""
    if missed := not_judged(cell for cell in cells if cell.frontend == "python"):
        raise AnswersNotJudged(
            f"answers that were not judged, since the harness could not deliver them: {len(missed)}, the "
            f"first: {missed[0]}",
            hint="run `vllm-harness regression` again; if an answer is never judged, report it with the run",
        )


class RegressionRun:
    """The folder of a run, which contains the files of the cells."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def named(cls, name: str) -> RegressionRun:
        """Finds a run by the path of its folder, or by its folder's name in the harness's state folder."""
        return cls(run_folder("regression", name))

    def has_cells(self) -> bool:
        """Whether any cell has finished."""
        return any(self.folder.glob("*/*/*.json"))

    def cells(self) -> Iterator[Cell]:
        """Yields the finished cells. Raises UsageError if there are none, or a file is not a results file."""
        paths = sorted(self.folder.glob("*/*/*.json"))
        if not paths:
            raise UsageError(
                f"{self.folder} has no regression results", hint="run `vllm-harness regression` first"
            )
        for path in paths:
            try:
                yield Cell.model_validate_json(path.read_text())
            except ValidationError as error:
                raise UsageError(
                    f"{path} is not a results file of this version: {error.errors()[0]['msg']}",
                    hint="remove the file, and run `vllm-harness regression` again with the same --run",
                ) from error

    def finished(
        self, environment: str, engine: Engine, family: str, group: Group, cases_digest: str
    ) -> bool:
        """Whether a cell has finished with exactly these cases; not if its server failed to start."""
        cell = self.cell(environment, engine, family, group)
        if cell is None:
            return False
        retried = cell.start_error is not None and engine == "http"
        return cell.cases_digest == cases_digest and not retried

    def cell(self, environment: str, engine: Engine, family: str, group: Group) -> Cell | None:
        """Reads a cell; returns None if it has not finished or its file has another version's format."""
        try:
            return Cell.model_validate_json(self._path(environment, engine, family, group).read_text())
        except (OSError, ValidationError):
            return None

    def write(self, cell: Cell) -> None:
        """Writes a finished cell, and removes the file with its intermediate curves."""
        path = self._path(cell.environment, cell.engine, cell.family, cell.group)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        half.write_text(cell.model_dump_json(indent=1, exclude_defaults=True))
        half.replace(path)
        path.with_suffix(CURVES).unlink(missing_ok=True)

    def curves_file(self, environment: str, family: str) -> Path:
        """Returns the file that stores the curves of an unfinished cell whose cost is measured over HTTP."""
        return self._path(environment, "http", family, "cost").with_suffix(CURVES)

    def folder_of(self, environment: str) -> Path:
        """Returns the folder with the results of a server environment."""
        return self.folder / environment.replace(os.sep, "_").replace(":", "_")

    def _path(self, environment: str, engine: Engine, family: str, group: Group) -> Path:
        return self.folder_of(environment) / engine / f"{family}.{group}.json"
