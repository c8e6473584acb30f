"""Which lines and branches of vLLM's parsers the cases run, by coverage.py in the server's interpreter."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.environments.installer import package_folder
from harness.environments.spec import Environment
from harness.matrix.run import LIMIT_S, Asked
from harness.scripted.in_process import Coverage, parsing

PACKAGE = "coverage==7.17.3"


@dataclass(frozen=True)
class FileCoverage:
    """One file of vLLM's.

    Attributes:
        name: below the package.
        lines, branches: share that ran, 0 to 100; None: it has none.
        statements: how many lines it has that can run.
        missing: the lines that did not run, as ranges.
        families: whose cases ran lines of it.
    """

    name: str
    lines: float
    branches: float | None
    statements: int
    missing: str
    families: tuple[str, ...]


def measure(
    environment: Environment, asked: Sequence[Asked], progress: Callable[[str], None]
) -> list[FileCoverage]:
    """Runs the cases in process under coverage.py, and tells what of each file ran.

    Raises:
        InstallError: coverage.py cannot be had.
        InProcessError: as `parsing`.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        cases = [(one.family, [question.case for question in one.questions.asked]) for one in asked]
        measured = Coverage(
            package_folder(PACKAGE, environment.python, environment.python_version, progress), report
        )
        for results in parsing(environment, cases, limit_s=LIMIT_S, coverage=measured):
            progress(f"{results[0].family}: {len(results)} answers")
        return _files(json.loads(report.read_text()))


def _files(report: dict[str, Any]) -> list[FileCoverage]:
    return sorted(
        (_file(path, told) for path, told in report["files"].items() if told["summary"]["num_statements"]),
        key=lambda one: one.name,
    )


def _file(path: str, told: dict[str, Any]) -> FileCoverage:
    summary = told["summary"]
    branches = summary["num_branches"]
    ran = {family for families in told["contexts"].values() for family in families} - {""}
    return FileCoverage(
        name=path.rpartition("/vllm/")[2],
        lines=100 * summary["covered_lines"] / summary["num_statements"],
        branches=100 * summary["covered_branches"] / branches if branches else None,
        statements=summary["num_statements"],
        missing=ranges(told["missing_lines"]),
        families=tuple(sorted(ran)),
    )


def ranges(numbers: Sequence[int]) -> str:
    """Line numbers in order as text: `3-5, 9`."""
    if not numbers:
        return ""
    starts = [numbers[0], *(after for before, after in pairwise(numbers) if after != before + 1)]
    ends = [*(before for before, after in pairwise(numbers) if after != before + 1), numbers[-1]]
    return ", ".join(
        str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)
    )
