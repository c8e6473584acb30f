"""The results of upstream's tests, as a table for the terminal and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from vllm_harness._terminal.tables import one_line, show_table

HEADINGS = ("file", "tests", "passed", "failed", "skipped", "known", "retries", "unit tests")
RESULTS = "upstream.json"


@dataclass
class TestResult:
    """The result of one test.

    Attributes:
        outcome: `passed`, `failed`, `skipped`, `defect`, or `newer` if the test needs a later vLLM.
        why: the failure in one line, the reason for a skip, or the id of a defect.
        details: the full text of a failure.
        server: whether the test uses a server.
        retries: the number of requests that the test's own helpers repeated.
        retried_for: the id of the known defect that caused the retries, if any.
        seconds: the duration of the test in seconds, without its fixtures.
        asked: whether the model answered at least one of the test's requests.
        unscripted: rules to add to the book, for requests that no rule matched.
        wrong: for each used rule, the kind of wrong answer that made the test fail; None if none did.
        any_answer: why the test passes with any answer, if its book says so.
    """

    __test__: ClassVar[bool] = False  # its name would make pytest collect it

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
    def passes_with_any(self) -> bool:
        """Whether the test passed with every wrong answer that was tried."""
        return bool(self.wrong) and not any(self.wrong.values())

    @property
    def checks_form_only(self) -> bool:
        """Whether the test passes with any answer, and its book says why."""
        return self.passes_with_any and self.any_answer is not None

    @property
    def outdated(self) -> bool:
        """Whether a wrong answer made the test fail, although its book says that it passes with any."""
        return self.any_answer is not None and any(self.wrong.values())


@dataclass
class UpstreamResults:
    """The results of a run.

    Attributes:
        tests: the results, by file and then by test.
        left_out: the number of test functions in each file that starts no server and was not run.
        dropped: for each server flag that a test requests and the harness omitted, the reason.
        about: facts about the run: environment, lane, number of servers, duration.
    """

    tests: dict[str, dict[str, TestResult]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def of(self, file: str, test: str) -> TestResult:
        """The result of a test; creates an empty result if there is none."""
        return self.tests.setdefault(file, {}).setdefault(test, TestResult())

    def served(self) -> list[TestResult]:
        """The results of the tests that use a server."""
        return [result for tests in self.tests.values() for result in tests.values() if result.server]

    def tried(self) -> dict[str, TestResult]:
        """The results of the tests that also ran with wrong answers, by file and test."""
        return {
            f"{file}::{test}": result
            for file, tests in self.tests.items()
            for test, result in tests.items()
            if result.wrong
        }

    def as_json(self) -> dict[str, Any]:
        """The results as JSON, for the run's folder."""
        files = {
            file: {
                **counts(list(tests.values())),
                "tests": {test: asdict(result) for test, result in tests.items()},
            }
            for file, tests in self.tests.items()
        }
        return {**self.about, "dropped": self.dropped, "left_out": self.left_out, "files": files}

    def write(self, folder: Path) -> Path:
        """Writes the results into the run's folder and returns the path of the file."""
        path = folder / RESULTS
        path.write_text(json.dumps(self.as_json(), indent=1))
        return path


def show(console: Console, results: UpstreamResults) -> None:
    """Prints a run's table of results, the reasons for skips, and the rules that its books lack."""
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
    causes = Counter(result.retried_for for result in every if result.retries and result.retried_for)
    for defect, count in causes.items():
        console.print(f"{count} tests were retried because of the known defect {defect}")
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
            console.print(f"checks the form only: {test}: {one_line(result.any_answer or '')}")
    for test, result in tried.items():
        if result.passes_with_any and not result.checks_form_only:
            console.print(f"passes with any answer: {test}")
    for test, result in tried.items():
        if result.outdated:
            kind = next(filter(None, result.wrong.values()))
            console.print(
                f"outdated: {test} failed with a wrong answer ({kind}); remove it from its book's any_answer"
            )


def share_of_wrong(tried: list[TestResult]) -> str:
    """A sentence with the share of tests that failed with a wrong answer: of all, and of content checks."""
    failed = sum(not result.passes_with_any for result in tried)
    looking = sum(not result.checks_form_only for result in tried)
    return (
        f"with a wrong answer {failed} of {len(tried)} tests that passed failed ({failed / len(tried):.0%}), "
        f"of those that check the content {failed} of {looking} ({failed / max(1, looking):.0%})"
    )


def _row(file: str, tests: list[TestResult]) -> list[str]:
    """A row of the table: the counts for tests that use a server, and how many other tests passed."""
    served, unit = [test for test in tests if test.server], [test for test in tests if not test.server]
    passed = sum(test.outcome == "passed" for test in unit)
    cells = list(map(str, counts(served).values())) if served else [""] * len(counts([]))
    return [file, *cells, f"{passed} of {len(unit)}" if unit else ""]


def counts(results: list[TestResult]) -> dict[str, int]:
    """The number of tests, the number of tests with each outcome, and the sum of all retries."""
    outcomes = Counter(result.outcome for result in results)
    return {
        "tests": len(results),
        "passed": outcomes["passed"],
        "failed": outcomes["failed"],
        "skipped": outcomes["skipped"],
        "defects": outcomes["defect"],
        "retries": sum(result.retries for result in results),
    }
