"""Which lines of vLLM's serving code each test of the suites runs, as measured once for a vLLM and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from vllm_harness._environments.spec import Environment
from vllm_harness._files.line_file import read_lines
from vllm_harness._files.paths import state_dir
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.changed.serving import SERVING

Outcome = Literal["passed", "known", "gone", "skipped", "failed"]
"""`known`: failed as a known defect; `gone`: it is to show one, and passed."""


class TestLines(StrictModel):
    """What a test ran.

    Attributes:
        test: its id.
        target: the model and lane that it ran on.
        outcome: of the run that was watched.
        seconds: that its own code took then.
        lines: of each file below vLLM's package, as text: `3-5, 9`.
        start: those that ran as it was set up, such as those of the shared server's start.
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
        """The test that it is a case of."""
        return self.test.partition("[")[0]


class Coverage:
    """The tests and what they ran.

    Args:
        tests: of a test that is there twice, the last counts.
    """

    def __init__(self, tests: Iterable[TestLines]) -> None:
        self._tests = {test.test: test for test in tests}

    def __len__(self) -> int:
        return len(self._tests)

    def __contains__(self, test: str) -> bool:
        return test in self._tests

    def running(self, file: str, span: tuple[int, int] | None, named: str | None = None) -> list[TestLines]:
        """The tests that run one of these lines, and a named one; without a span, any line of the file.

        What runs at a server's start alone, any test may notice that runs the file. A test that fails, or is
        skipped, without a mutant too says nothing about one.
        """

        def runs(test: TestLines) -> bool:
            lines = test.lines.get(file)
            return lines is not None if span is None else _meet(lines or "", span)

        settled = [test for test in self._tests.values() if test.outcome in ("passed", "known")]
        found = [test for test in settled if test.test == named or runs(test)]
        started = span and any(_meet(test.start.get(file, ""), span) for test in self._tests.values())
        return found if found or not started else self.running(file, None)


def coverage_file(environment: Environment) -> Path:
    """The file of what the tests run on this very vLLM; it need not be there.

    It is another one where `SERVING` is: tests were not watched in files that were added since.
    """
    watched = hashlib.sha256("\n".join(SERVING).encode()).hexdigest()[:8]
    return state_dir() / "mutants" / f"lines-{environment.fingerprint()}-{watched}.jsonl"


def lines_run(test: TestLines, file: str, span: tuple[int, int] | None) -> int:
    """How many of these lines a test runs; 0 without a span."""
    if span is None:
        return 0
    ranges = _ranges(test.lines.get(file, ""))
    return sum(max(0, min(last, span[1]) - max(first, span[0]) + 1) for first, last in ranges)


def read_coverage(path: Path) -> Coverage:
    """The coverage that a file holds; an empty one where it is not there.

    Raises:
        UsageError: the file holds something else.
    """
    hint = "remove the file; --measure makes it again"
    return Coverage(read_lines(path, TestLines, what="coverage of a test", hint=hint))


def _meet(lines: str, span: tuple[int, int]) -> bool:
    return any(first <= span[1] and span[0] <= last for first, last in _ranges(lines))


@cache
def _ranges(lines: str) -> tuple[tuple[int, int], ...]:
    """The first and last numbers of a text of ranges."""
    return tuple(_pairs(lines))


def _pairs(lines: str) -> Iterator[tuple[int, int]]:
    for part in filter(None, lines.split(", ")):
        first, _, last = part.partition("-")
        yield int(first), int(last or first)
