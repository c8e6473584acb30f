"""The cells of a run: one file a cell, written when it has finished, so that a run can go on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from vllm_harness._configuration.model_entries import Frontend
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import run_folder
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.case import Group, Topic
from vllm_harness._regression.cases.delivery import DeliveryField
from vllm_harness._regression.engines.answer import Curve
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.results.mismatches import MismatchField

CURVES = ".curves"


class CaseVerdict(StrEnum):
    """What became of a case."""

    PASSED = "passed"
    FAILED = "failed"
    LEFT_OUT = "left_out"


class CaseResult(StrictModel):
    """One case of a cell.

    Attributes:
        topic: what it is about.
        text: what the model generates; empty where the case was left out.
        left_out: why, if it was.
        mismatches: by delivery; deliveries without a mismatch are not there.
        examples: delivery -> the first answer with a mismatch; over HTTP, where a case has one answer in a
            delivery, that one.
        digests: delivery -> digest of the answer, where a case has one answer in that delivery.
        deliveries: in how many it was run.
        curves: delivery -> what it takes at rising lengths, where that was measured.
    """

    topic: Topic
    text: str = ""
    left_out: str | None = None
    mismatches: dict[DeliveryField, tuple[MismatchField, ...]] = Field(default_factory=dict)
    examples: dict[DeliveryField, str] = Field(default_factory=dict)
    digests: dict[DeliveryField, str] = Field(default_factory=dict)
    deliveries: int = 0
    curves: dict[DeliveryField, Curve] = Field(default_factory=dict)

    @property
    def verdict(self) -> CaseVerdict:
        """What became of it."""
        if self.left_out:
            return CaseVerdict.LEFT_OUT
        return CaseVerdict.FAILED if self.mismatches else CaseVerdict.PASSED


class Cell(StrictModel):
    """One family and one group of cases on one vLLM.

    Attributes:
        environment: spec, as in `--vllm`.
        described: the environment in full.
        family, group, tool_parser, reasoning_parser, tokenizer: what was run.
        engine: the parser objects driven in their interpreter, or a server over HTTP.
        frontend: of the server.
        seconds: how long it took, start of a server included.
        cases_digest: of cases and deliveries; another digest makes the cell run again.
        start_error: why vLLM could not make the parsers at all, or no server of them.
        changed_alone: cases and deliveries whose answer was another alone than among other requests.
        cases: by name.
    """

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
    changed_alone: tuple[tuple[str, DeliveryField], ...] = ()
    cases: dict[str, CaseResult] = Field(default_factory=dict)

    def count(self, verdict: CaseVerdict) -> int:
        """How many cases have this verdict."""
        return sum(case.verdict == verdict for case in self.cases.values())


class RegressionRun:
    """The folder of a run.

    Args:
        folder: where its cells stand.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def named(cls, name: str) -> RegressionRun:
        """A run by the path of its folder, or by its name in the state folder."""
        return cls(run_folder("regression", name))

    def has_cells(self) -> bool:
        """Whether a cell has finished."""
        return any(self.folder.glob("*/*/*.json"))

    def cells(self) -> Iterator[Cell]:
        """The cells that have finished; UsageError names a file that is none, or says that there are none."""
        paths = sorted(self.folder.glob("*/*/*.json"))
        if not paths:
            raise UsageError(
                f"{self.folder} holds no cells of a run", hint="run `vllm-harness regression` first"
            )
        for path in paths:
            try:
                yield Cell.model_validate_json(path.read_text())
            except ValidationError as error:
                raise UsageError(
                    f"{path} is no cell of a run of this harness: {error.errors()[0]['msg']}",
                    hint="remove the file, and run `vllm-harness regression` with the same --run again",
                ) from error

    def finished(
        self, environment: str, engine: Engine, family: str, group: Group, cases_digest: str
    ) -> bool:
        """Whether a cell has been run with exactly these cases."""
        cell = self.cell(environment, engine, family, group)
        if cell is None:
            return False
        by_chance = cell.start_error is not None and engine == "http"
        return cell.cases_digest == cases_digest and not by_chance

    def cell(self, environment: str, engine: Engine, family: str, group: Group) -> Cell | None:
        """One cell; None where it has not finished, or is of another harness."""
        try:
            return Cell.model_validate_json(self._path(environment, engine, family, group).read_text())
        except (OSError, ValidationError):
            return None

    def write(self, cell: Cell) -> None:
        """Keeps a finished cell."""
        path = self._path(cell.environment, cell.engine, cell.family, cell.group)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        half.write_text(cell.model_dump_json(indent=1, exclude_defaults=True))
        half.replace(path)
        path.with_suffix(CURVES).unlink(missing_ok=True)

    def curves_file(self, environment: str, family: str) -> Path:
        """The file with the curves of a cell that is measured over HTTP, until it has finished."""
        return self._path(environment, "http", family, "cost").with_suffix(CURVES)

    def folder_of(self, environment: str) -> Path:
        """The folder of what was run on an environment."""
        return self.folder / environment.replace(os.sep, "_").replace(":", "_")

    def _path(self, environment: str, engine: Engine, family: str, group: Group) -> Path:
        return self.folder_of(environment) / engine / f"{family}.{group}.json"
