"""The lines of vLLM's serving code that each test of the suites runs, measured once for each vLLM."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from vllm_harness._environments.spec import Environment
from vllm_harness._files.line_file import read_lines
from vllm_harness._files.paths import state_dir
from vllm_harness._files.strict import StrictModel
from vllm_harness.extras.review.serving import SERVING

Outcome = Literal["passed", "known", "gone", "skipped", "failed"]
"""`known`: failed because of a known defect; `gone`: passed although it should show a known defect."""


class TestLines(StrictModel):
    """The lines that a test ran.

    Attributes:
        test: the id of the test.
        target: the model and lane that it ran on.
        outcome: the outcome in the measured run.
        seconds: the duration of the test itself.
        lines: the lines that ran, such as `3-5, 9`, by file below vLLM's package.
        start: the same for lines that ran during setup, such as those of the shared server's start.
    """

    __test__ = False

    test: str
    target: str
    outcome: Outcome
    seconds: float
    lines: dict[str, str]
    start: dict[str, str] = Field(default_factory=dict)

    @property
    def function(self) -> str:
        """The id without the parameters of the case."""
        return self.test.partition("[")[0]


class Coverage:
    """The tests and the lines that they ran.

    Args:
        tests: the tests; if a test occurs twice, the last one counts.
    """

    def __init__(self, tests: Iterable[TestLines]) -> None:
        self._tests = {test.test: test for test in tests}

    def __len__(self) -> int:
        return len(self._tests)

    def __contains__(self, test: str) -> bool:
        return test in self._tests

    def running(self, file: str, span: tuple[int, int] | None, named: str | None = None) -> list[TestLines]:
        """The tests that run at least one line of a span, and the test `named`.

        These are the tests that run any line of the file if there is no span, or if its lines only run at a
        server's start. Tests that failed or were skipped in the measured run are left out.
        """

        def runs(test: TestLines) -> bool:
            lines = test.lines.get(file)
            return lines is not None if span is None else _overlap(lines or "", span)

        usable = [test for test in self._tests.values() if test.outcome in ("passed", "known")]
        chosen = [test for test in usable if test.test == named or runs(test)]
        at_start = span and any(_overlap(test.start.get(file, ""), span) for test in self._tests.values())
        return chosen if chosen or not at_start else self.running(file, None)


def coverage_file(environment: Environment) -> Path:
    """The path of the coverage for exactly this vLLM and the files of `SERVING`; the file may not exist."""
    watched = hashlib.sha256("\n".join(SERVING).encode()).hexdigest()[:8]
    return state_dir() / "mutants" / f"lines-{environment.fingerprint()}-{watched}.jsonl"


def lines_run(test: TestLines, file: str, span: tuple[int, int] | None) -> int:
    """The number of lines of a span that a test runs; 0 without a span."""
    if span is None:
        return 0
    ranges = _ranges(test.lines.get(file, ""))
    return sum(max(0, min(last, span[1]) - max(first, span[0]) + 1) for first, last in ranges)


def read_coverage(path: Path) -> Coverage:
    """Reads a file with coverage; empty if the file does not exist.

    Raises:
        UsageError: the file is malformed.
    """
    hint = "remove the file, and run --measure again"
    return Coverage(read_lines(path, TestLines, what="coverage of a test", hint=hint))


def _overlap(lines: str, span: tuple[int, int]) -> bool:
    return any(first <= span[1] and span[0] <= last for first, last in _ranges(lines))


@cache
def _ranges(lines: str) -> tuple[tuple[int, int], ...]:
    """Parses lines such as `3-5, 9` to (first, last)."""
    parts = (part.partition("-") for part in lines.split(", ") if part)
    return tuple((int(first), int(last or first)) for first, _, last in parts)
