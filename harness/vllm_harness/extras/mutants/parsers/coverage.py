"""Measures with coverage.py which lines and branches of vLLM's parsers the cases run."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from vllm_harness._environments.installer import install_into
from vllm_harness._environments.spec import Environment
from vllm_harness._exchange.delivery import deliveries
from vllm_harness._files.paths import cache_dir
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.tasks import run_tasks
from vllm_harness._regression.cases.case import CaseInput, CaseSet
from vllm_harness._regression.engines.in_process import INTERPRETERS_FOLDER, parse_all
from vllm_harness._regression.run import LIMIT_S, shares
from vllm_harness.extras.mutants.parsers.unreached import load_unreached, reasons

_WORKER = Path(__file__).parents[1] / "workers" / "vllm_harness_coverage.py"
PACKAGE = "coverage==7.17.3"
DELIVERIES = deliveries("whole tokens_1 tokens_5 held_back all_with_end")
TRUNCATED_DELIVERIES = deliveries("whole tokens_1")
"""Deliveries that reach as many lines as all deliveries, in a third of the time under coverage.py."""


@dataclass(frozen=True)
class FileCoverage:
    """The coverage of one of vLLM's files.

    Attributes:
        name: the path of the file, relative to vLLM's package.
        lines, branches: the percentage that ran; `branches` is None if the file has no branches.
        statements: the number of lines that can run.
        missing: the lines that did not run and for which no reason is known, as ranges.
        reasons: reason -> the number of lines that did not run for this reason.
        families: the families whose cases ran lines of the file.
    """

    name: str
    lines: float
    branches: float | None
    statements: int
    missing: str
    reasons: dict[str, int]
    families: tuple[str, ...]

    @property
    def explained(self) -> float:
        """The percentage of lines that ran, or for which the reason is known why they did not."""
        return min(100.0, self.lines + 100 * sum(self.reasons.values()) / self.statements)


def measure(
    environment: Environment,
    case_sets: Sequence[CaseSet],
    progress: Callable[[str], None],
    *,
    parallel: int = 1,
) -> list[FileCoverage]:
    """Runs the cases in process under coverage.py, and returns the coverage of each file.

    Args:
        environment: the vLLM to measure.
        case_sets: the cases; only their deliveries that are also in `DELIVERIES` run.
        progress: called with a line for each finished case set.
        parallel: the number of interpreters to run at a time.

    Raises:
        InstallError: coverage.py cannot be installed.
        InProcessError: see `parse_all`.
    """
    environ = with_coverage(environment, progress)
    dealt = shares(case_sets, parallel)
    with temporary_folder() as folder:
        reports = [folder / f"{number}.json" for number in range(len(dealt))]
        environs = [{**environ, "VH_COVERAGE": str(report)} for report in reports]
        tasks = [partial(_run, environment, progress, *each) for each in zip(dealt, environs, strict=True)]
        if errors := run_tasks(tasks, parallel):
            raise errors[0]
        return files_of([json.loads(report.read_text()) for report in reports], _source)


def with_coverage(environment: Environment, progress: Callable[[str], None]) -> dict[str, str]:
    """Installs coverage.py; returns environment variables with which the interpreter can import it.

    Raises InstallError. `progress` is called if coverage.py is not installed yet.
    """
    folder = cache_dir() / f"{PACKAGE.replace('==', '-')}-py{environment.python_version}"
    package = install_into(folder, f"--python={environment.python}", PACKAGE, progress=progress)
    environ = environment.environ()
    paths = filter(None, [str(package), environ.get("PYTHONPATH")])
    return {**environ, "PYTHONPATH": os.pathsep.join(paths)}


def _source(path: str) -> str:
    """Reads a file by its path in a report, which may be relative to the interpreter's folder."""
    return Path(INTERPRETERS_FOLDER, path).read_text()


def _run(
    environment: Environment,
    progress: Callable[[str], None],
    case_sets: Sequence[CaseSet],
    environ: dict[str, str],
) -> None:
    inputs = [(cases.family, [_measured(input_) for input_ in cases.inputs]) for cases in case_sets]
    watcher = _WORKER.read_text()
    for answers in parse_all(environment, inputs, limit_s=LIMIT_S, prelude=watcher, environ=environ):
        cases = case_sets[answers[0].case_set]
        progress(f"{cases.family.name}, {cases.group}: {len(answers)} answers")


def _measured(input_: CaseInput) -> CaseInput:
    measured = TRUNCATED_DELIVERIES if input_.truncated else DELIVERIES
    kept = tuple(delivery for delivery in input_.deliveries if delivery in measured)
    return input_.model_copy(update={"deliveries": kept})


def files_of(reports: Sequence[dict[str, Any]], source: Callable[[str], str]) -> list[FileCoverage]:
    """The coverage of all files with executable lines, combined from several reports.

    Args:
        reports: coverage.py's JSON reports, with contexts.
        source: returns the text of a file by its path in the reports.
    """
    paths = {path for report in reports for path in report["files"]}
    files = [
        _file(path, [report["files"][path] for report in reports if path in report["files"]], source)
        for path in paths
    ]
    return sorted((file for file in files if file.statements), key=lambda file: file.name)


def _file(path: str, reports: Sequence[dict[str, Any]], source: Callable[[str], str]) -> FileCoverage:
    name = path.rpartition("/vllm/")[2]
    lines, missed = _ran(reports, "lines")
    why = reasons(name, source(path), sorted(missed), load_unreached()) if missed else {}
    branches, untaken = _ran(reports, "branches")
    contexts = [families for report in reports for families in report["contexts"].values()]
    return FileCoverage(
        name=name,
        lines=_share(len(lines), len(missed)),
        branches=_share(len(branches), len(untaken)) if branches or untaken else None,
        statements=len(lines) + len(missed),
        missing=ranges(sorted(missed - why.keys())),
        reasons=dict(Counter(why.values())),
        families=tuple(sorted({family for families in contexts for family in families} - {""})),
    )


def _ran(reports: Sequence[dict[str, Any]], unit: str) -> tuple[set[Any], set[Any]]:
    """The lines or branches that ran according to any report, and the lines or branches that never ran."""
    ran = {_hashable(place) for report in reports for place in report[f"executed_{unit}"]}
    every = ran | {_hashable(place) for report in reports for place in report[f"missing_{unit}"]}
    return ran, every - ran


def _hashable(place: int | list[int]) -> int | tuple[int, ...]:
    return tuple(place) if isinstance(place, list) else place


def _share(part: int, rest: int) -> float:
    return 100 * part / (part + rest) if part + rest else 100.0


def ranges(numbers: Sequence[int]) -> str:
    """Formats sorted line numbers as ranges, such as `3-5, 9`."""
    if not numbers:
        return ""
    starts = [numbers[0], *(after for before, after in pairwise(numbers) if after != before + 1)]
    ends = [*(before for before, after in pairwise(numbers) if after != before + 1), numbers[-1]]
    return ", ".join(
        str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)
    )
