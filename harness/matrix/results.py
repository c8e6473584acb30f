"""Results of the matrix: one file a cell, written when it has finished, so that a run can go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import UsageError
from harness.paths import state_dir
from harness.scripted.in_process import Case

Verdict = Literal["pass", "fail", "left out"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CaseResult(_Strict):
    """One case of a cell.

    Attributes:
        group: of the case.
        text: what the model said; empty where it was left out.
        left_out: why, if it was.
        wrong: way of asking -> what is wrong; ways in which nothing is wrong are not there.
        ways: in how many ways it was asked.
    """

    group: str
    text: str = ""
    left_out: str | None = None
    wrong: dict[str, tuple[str, ...]] = {}
    ways: int = 0

    @property
    def verdict(self) -> Verdict:
        """Its outcome in one word."""
        return "left out" if self.left_out else "fail" if self.wrong else "pass"


class Cell(_Strict):
    """One family on one vLLM.

    Attributes:
        environment: spec, as in `--vllm`.
        described: the environment in full.
        family, tool_parser, reasoning_parser, tokenizer: what was asked.
        engine: `in process` or `server`.
        asked: digest of cases and ways; another digest makes the cell run again.
        refused: why vLLM could not make the parsers at all.
        cases: by name.
    """

    environment: str
    described: str
    family: str
    tool_parser: str | None
    reasoning_parser: str | None
    tokenizer: Literal["real", "synthetic"]
    engine: Literal["in process", "server"]
    asked: str
    refused: str | None = None
    cases: dict[str, CaseResult] = {}

    def count(self, verdict: Verdict) -> int:
        """How many cases came out so."""
        return sum(case.verdict == verdict for case in self.cases.values())


class Run:
    """The folder of a run.

    Args:
        folder: where its cells stand.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def named(cls, name: str) -> Run:
        """A run by the path of its folder, or by its name in the state folder."""
        path = Path(name)
        return cls(path if path.is_dir() or os.sep in name else state_dir() / "matrix" / name)

    def cells(self) -> Iterator[Cell]:
        """The cells that have finished; UsageError names a file that is none, or says that there are none."""
        paths = sorted(self.folder.glob("*/*.json"))
        if not paths:
            raise UsageError(
                f"{self.folder} holds no cells of a matrix", hint="run `vllm-harness matrix` first"
            )
        for path in paths:
            try:
                yield Cell.model_validate_json(path.read_text())
            except ValidationError as error:
                raise UsageError(f"{path} is no cell: {error.errors()[0]['msg']}") from error

    def finished(self, environment: str, family: str, asked: str) -> bool:
        """Whether a cell has been run with exactly these cases."""
        try:
            cell = Cell.model_validate_json(self._path(environment, family).read_text())
        except (OSError, ValidationError):
            return False
        return cell.asked == asked

    def write(self, cell: Cell) -> None:
        """Keeps a finished cell."""
        path = self._path(cell.environment, cell.family)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        half.write_text(cell.model_dump_json(indent=1, exclude_defaults=True))
        half.replace(path)

    def _path(self, environment: str, family: str) -> Path:
        name = environment.replace(os.sep, "_").replace(":", "_")
        return self.folder / name / f"{family}.json"


def digest(cases: list[Case], ways: tuple[str, ...]) -> str:
    """Tells one set of questions from another."""
    told = json.dumps([[case.model_dump() for case in cases], ways], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]
