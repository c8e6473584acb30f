"""Which lines and branches of vLLM's parsers the cases run, by coverage.py in the server's interpreter."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from vllm_harness.environments.installer import package_folder
from vllm_harness.environments.spec import Environment
from vllm_harness.regression.engines.in_process import INTERPRETERS_FOLDER, Case, Coverage, parsing
from vllm_harness.regression.mutation.unreached import load_unreached, reasons
from vllm_harness.regression.run import LIMIT_S, Asked, shares

PACKAGE = "coverage==7.17.3"
WAYS = ("whole", "1", "5", "late", "0+end")
CUT_WAYS = ("whole", "1")
"""Ways of parsing that reach what the others do: under coverage.py all of them take three times as long."""


@dataclass(frozen=True)
class FileCoverage:
    """One file of vLLM's.

    Attributes:
        name: below the package.
        lines, branches: share that ran, 0 to 100; None: it has none.
        statements: how many lines it has that can run.
        missing: the lines that did not run and have no reason, as ranges.
        reasons: why others did not run -> how many.
        families: whose cases ran lines of it.
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
        """Share of lines that ran or have a reason, 0 to 100."""
        return min(100.0, self.lines + 100 * sum(self.reasons.values()) / self.statements)


def measure(
    environment: Environment,
    asked: Sequence[Asked],
    progress: Callable[[str], None],
    *,
    parallel: int = 1,
) -> list[FileCoverage]:
    """Runs the cases in process under coverage.py, and tells what of each file ran.

    Args:
        asked: of their ways, those in `WAYS` are run.
        parallel: interpreters at a time.

    Raises:
        InstallError: coverage.py cannot be had.
        InProcessError: as `parsing`.
    """
    package = package_folder(PACKAGE, environment.python, environment.python_version, progress)
    dealt = shares(asked, parallel)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(parallel) as pool:
        measured = [Coverage(package, Path(folder, f"{number}.json")) for number in range(len(dealt))]
        list(pool.map(partial(_run, environment, progress), dealt, measured))
        return files_of([json.loads(one.report.read_text()) for one in measured], _source)


def _source(path: str) -> str:
    """A file by its path in a report, which leaves out the folder that the interpreter runs in."""
    return Path(INTERPRETERS_FOLDER, path).read_text()


def _run(
    environment: Environment, progress: Callable[[str], None], asked: Sequence[Asked], measured: Coverage
) -> None:
    cases = [(one.family, [_measured(question.case) for question in one.questions.asked]) for one in asked]
    for results in parsing(environment, cases, limit_s=LIMIT_S, coverage=measured):
        one = asked[results[0].job]
        progress(f"{one.family.name}, {one.group}: {len(results)} answers")


def _measured(case: Case) -> Case:
    ways = tuple(way for way in case.ways if way in (CUT_WAYS if case.cut else WAYS))
    return case.model_copy(update={"ways": ways})


def files_of(reports: Sequence[dict[str, Any]], source: Callable[[str], str]) -> list[FileCoverage]:
    """The files with lines that can run, from reports of coverage.py in JSON with contexts, as one.

    Args:
        source: what stands in a file.
    """
    names = {name for report in reports for name in report["files"]}
    found = [_file(name, [r["files"][name] for r in reports if name in r["files"]], source) for name in names]
    return sorted((one for one in found if one.statements), key=lambda one: one.name)


def _file(path: str, told: Sequence[dict[str, Any]], source: Callable[[str], str]) -> FileCoverage:
    name = path.rpartition("/vllm/")[2]
    lines, missed = _ran(told, "lines")
    why = reasons(name, source(path), sorted(missed), load_unreached()) if missed else {}
    branches, untaken = _ran(told, "branches")
    contexts = [families for one in told for families in one["contexts"].values()]
    return FileCoverage(
        name=name,
        lines=_share(len(lines), len(missed)),
        branches=_share(len(branches), len(untaken)) if branches or untaken else None,
        statements=len(lines) + len(missed),
        missing=ranges(sorted(missed - why.keys())),
        reasons=dict(Counter(why.values())),
        families=tuple(sorted({family for families in contexts for family in families} - {""})),
    )


def _ran(told: Sequence[dict[str, Any]], what: str) -> tuple[set[Any], set[Any]]:
    """What ran in any report, and what ran in none."""
    ran = {_hashable(one) for report in told for one in report[f"executed_{what}"]}
    every = ran | {_hashable(one) for report in told for one in report[f"missing_{what}"]}
    return ran, every - ran


def _hashable(place: int | list[int]) -> int | tuple[int, ...]:
    return tuple(place) if isinstance(place, list) else place


def _share(some: int, others: int) -> float:
    return 100 * some / (some + others) if some + others else 100.0


def ranges(numbers: Sequence[int]) -> str:
    """Line numbers in order as text: `3-5, 9`."""
    if not numbers:
        return ""
    starts = [numbers[0], *(after for before, after in pairwise(numbers) if after != before + 1)]
    ends = [*(before for before, after in pairwise(numbers) if after != before + 1), numbers[-1]]
    return ", ".join(
        str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)
    )
