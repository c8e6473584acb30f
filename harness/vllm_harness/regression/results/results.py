"""Results of the matrix: one file a cell, written when it has finished, so that a run can go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from vllm_harness.errors import UsageError
from vllm_harness.files.paths import state_dir
from vllm_harness.files.strict import StrictModel

Engine = Literal["in-process", "http"]
Verdict = Literal["pass", "fail", "left out"]


class CaseResult(StrictModel):
    """One case of a cell.

    Attributes:
        topic: what it is about.
        text: what the model said; empty where it was left out.
        left_out: why, if it was.
        wrong: way of asking -> what is wrong; ways in which nothing is wrong are not there.
        seen: way of asking -> the first answer that was wrong.
        came: way of asking -> digest of what came, where a case is asked once in that way.
        ways: in how many ways it was asked.
    """

    topic: str
    text: str = ""
    left_out: str | None = None
    wrong: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    seen: dict[str, str] = Field(default_factory=dict)
    came: dict[str, str] = Field(default_factory=dict)
    ways: int = 0

    @property
    def verdict(self) -> Verdict:
        """Its outcome in one word."""
        return "left out" if self.left_out else "fail" if self.wrong else "pass"


class Cell(StrictModel):
    """One family and one group of cases on one vLLM.

    Attributes:
        environment: spec, as in `--vllm`.
        described: the environment in full.
        family, group, tool_parser, reasoning_parser, tokenizer: what was asked.
        engine: the parser objects driven in their interpreter, or a server over HTTP.
        seconds: how long it took, start of a server included.
        asked: digest of cases and ways; another digest makes the cell run again.
        refused: why vLLM could not make the parsers at all.
        alone: cases, and how they were asked, that came out otherwise alone than among others.
        cases: by name.
    """

    environment: str
    described: str
    family: str
    group: str
    tool_parser: str | None
    reasoning_parser: str | None
    tokenizer: Literal["real", "synthetic"]
    engine: Engine
    asked: str
    seconds: float = 0.0
    refused: str | None = None
    alone: tuple[str, ...] = ()
    cases: dict[str, CaseResult] = Field(default_factory=dict)

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
        paths = sorted(self.folder.glob("*/*/*.json"))
        if not paths:
            raise UsageError(
                f"{self.folder} holds no cells of a matrix", hint="run `vllm-harness matrix` first"
            )
        for path in paths:
            try:
                yield Cell.model_validate_json(path.read_text())
            except ValidationError as error:
                raise UsageError(f"{path} is no cell: {error.errors()[0]['msg']}") from error

    def finished(self, environment: str, engine: Engine, family: str, group: str, asked: str) -> bool:
        """Whether a cell has been run with exactly these cases."""
        path = self._path(environment, engine, family, group)
        try:
            cell = Cell.model_validate_json(path.read_text())
        except (OSError, ValidationError):
            return False
        return cell.asked == asked and not (cell.refused and engine == "http")  # a start may fail by chance

    def write(self, cell: Cell) -> None:
        """Keeps a finished cell."""
        path = self._path(cell.environment, cell.engine, cell.family, cell.group)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        half.write_text(cell.model_dump_json(indent=1, exclude_defaults=True))
        half.replace(path)

    def place(self, environment: str) -> Path:
        """The folder of what was run on an environment."""
        return self.folder / environment.replace(os.sep, "_").replace(":", "_")

    def _path(self, environment: str, engine: Engine, family: str, group: str) -> Path:
        return self.place(environment) / engine / f"{family}.{group}.json"


def short_digest(value: object) -> str:
    """16 letters that tell one JSON value from another."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
