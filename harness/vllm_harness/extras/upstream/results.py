"""What became of upstream's tests: a row for each file, for the terminal and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from vllm_harness._terminal.tables import one_line, show_table

HEADINGS = ("file", "tests", "passed", "failed", "skipped", "defects", "retries", "unit tests")
RESULTS = "upstream.json"


@dataclass
class TestResult:
    """What became of one test.

    Attributes:
        outcome: `passed`, `failed`, `skipped`, `defect`, or `newer`: it asks for what a later vLLM has.
        why: of a failure, in one line; the reason of a skip; the id of a defect.
        details: of a failure, whole.
        server: whether it uses a server.
        retries: requests that the test's own helpers made again, and runs that a plugin repeated.
        retried_for: the id of the known defect that the retries are owed to, where there is one.
        seconds: how long it took, without its fixtures.
        asked: whether the model was asked: it is not where the server refuses each request at once.
        unscripted: rules to add to the book, for requests that none was for.
        wrong: of each rule that was used, the kind of wrong answer that the test failed on; None: it passes
            with any.
        any_answer: why it passes with any answer, where its book says so.
    """

    __test__: ClassVar[bool] = False  # for pytest, which takes it for a test by its name

    outcome: str = ""
    why: str = ""
    details: str = ""
    server: bool = True
    retries: int = 0
    retried_for: str | None = None
    seconds: float = 0.0
    asked: bool = False
    unscripted: list[str] = field(default_factory=list)
    wrong: dict[str, str | None] = field(default_factory=dict)
    any_answer: str | None = None

    @property
    def empty(self) -> bool:
        """Whether it passed, and no wrong answer that was tried made it fail."""
        return bool(self.wrong) and not any(self.wrong.values())

    @property
    def checks_form_only(self) -> bool:
        """Whether it is empty, and its book says why."""
        return self.empty and self.any_answer is not None

    @property
    def outdated(self) -> bool:
        """Whether its book says that it passes with any answer, and a wrong one made it fail."""
        return self.any_answer is not None and any(self.wrong.values())


@dataclass
class UpstreamResults:
    """What became of a run's files.

    Attributes:
        tests: file -> test -> result.
        left_out: files whose tests start no server and import vLLM or torch: number of test functions.
        dropped: flags of servers that were left out, and why.
        about: the run: environment, lane, servers started, seconds.
    """

    tests: dict[str, dict[str, TestResult]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def of(self, file: str, test: str) -> TestResult:
        """The result of a test."""
        return self.tests.setdefault(file, {}).setdefault(test, TestResult())

    def served(self) -> list[TestResult]:
        """The results of the tests that use a server."""
        return [result for tests in self.tests.values() for result in tests.values() if result.server]

    def tried(self) -> dict[str, TestResult]:
        """The results of the tests that were run with wrong answers too, by file and test."""
        return {
            f"{file}::{test}": result
            for file, tests in self.tests.items()
            for test, result in tests.items()
            if result.wrong
        }

    def as_json(self) -> dict[str, Any]:
        """For the run's folder."""
        files = {
            file: {
                **counts(list(tests.values())),
                "tests": {test: asdict(result) for test, result in tests.items()},
            }
            for file, tests in self.tests.items()
        }
        return {**self.about, "dropped": self.dropped, "left_out": self.left_out, "files": files}

    def write(self, folder: Path) -> Path:
        """Keeps the results beside the logs."""
        path = folder / RESULTS
        path.write_text(json.dumps(self.as_json(), indent=1))
        return path


def show(console: Console, results: UpstreamResults) -> None:
    """Prints the table of a run, why tests were skipped, and what its books lack."""
    every = [result for tests in results.tests.values() for result in tests.values()]
    rows = [_row(file, list(tests.values())) for file, tests in results.tests.items()]
    rows.append(_row("all", every))
    show_table(console, HEADINGS, rows, numbers=HEADINGS[1:], whole=True)
    served = results.served()
    if served:
        passed = sum(result.outcome == "passed" for result in served)
        console.print(
            f"of {len(served)} tests that use a server, {passed} passed ({passed / len(served):.0%})"
        )
    _show_unit_tests(console, results, "failed", "failed")
    _show_unit_tests(console, results, "newer", "needs a later vLLM")
    reasons = Counter(result.why for result in every if result.outcome == "skipped")
    for reason, count in reasons.most_common():
        console.print(f"skipped {count}: {one_line(reason)}")
    if results.left_out:
        total = sum(results.left_out.values())
        console.print(
            f"left out: {len(results.left_out)} files with {total} test functions that start no server and "
            "import vLLM or torch"
        )
    owed = Counter(result.retried_for for result in every if result.retries and result.retried_for)
    for defect, count in owed.items():
        console.print(f"retries in {count} tests are owed to the known defect {defect}")
    for flag, why in sorted(results.dropped.items()):
        console.print(f"flag left out: {flag} ({why})")
    _show_wrong(console, results)
    for file, tests in results.tests.items():
        for test, result in tests.items():
            for rule in result.unscripted:
                console.print(f"{file}: {test}: no rule for a request; add to its book:\n{rule}")


def _show_unit_tests(console: Console, results: UpstreamResults, outcome: str, words: str) -> None:
    for file, tests in results.tests.items():
        for test, result in tests.items():
            if result.outcome == outcome and not result.server:
                place = f"{file}: {test}" if test else file
                console.print(f"{words}: {place}: {one_line(result.why)}")


def _show_wrong(console: Console, results: UpstreamResults) -> None:
    tried = results.tried()
    if not tried:
        return
    rules = [kind for result in tried.values() for kind in result.wrong.values()]
    kinds = Counter(kind for kind in rules if kind)
    shown = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    console.print(f"{share_of_wrong(list(tried.values()))}; rules: {len(rules)}, {shown}")
    for test, result in tried.items():
        if result.checks_form_only:
            console.print(f"looks at form only: {test}: {one_line(result.any_answer or '')}")
    for test, result in tried.items():
        if result.empty and not result.checks_form_only:
            console.print(f"passes with any answer: {test}")
    for test, result in tried.items():
        if result.outdated:
            kind = next(filter(None, result.wrong.values()))
            console.print(
                f"outdated: {test} failed with a wrong answer ({kind}); take it out of its book's any_answer"
            )


def share_of_wrong(tried: list[TestResult]) -> str:
    """How many tests failed with a wrong answer, of all that were tried and of those that look at it."""
    failed = sum(not result.empty for result in tried)
    looking = sum(not result.checks_form_only for result in tried)
    return (
        f"with a wrong answer {failed} of {len(tried)} tests that passed failed ({failed / len(tried):.0%}), "
        f"of those that look at the answer {failed} of {looking} ({failed / max(1, looking):.0%})"
    )


def _row(file: str, tests: list[TestResult]) -> list[str]:
    """A row of the table: the tests that use a server, and how many of the others passed."""
    served, unit = [test for test in tests if test.server], [test for test in tests if not test.server]
    passed = sum(test.outcome == "passed" for test in unit)
    cells = list(map(str, counts(served).values())) if served else [""] * len(counts([]))
    return [file, *cells, f"{passed} of {len(unit)}" if unit else ""]


def counts(results: list[TestResult]) -> dict[str, int]:
    """How many tests there are, how many of each outcome, and all their retries."""
    outcomes = Counter(result.outcome for result in results)
    return {
        "tests": len(results),
        "passed": outcomes["passed"],
        "failed": outcomes["failed"],
        "skipped": outcomes["skipped"],
        "defects": outcomes["defect"],
        "retries": sum(result.retries for result in results),
    }
