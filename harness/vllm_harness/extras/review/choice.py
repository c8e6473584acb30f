"""Chooses the tests in the suites that can reveal the effect of a change to vLLM's serving code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from vllm_harness.extras.review.coverage import Coverage, TestLines
from vllm_harness.extras.review.serving import changed_statements, serving_files

MOST = 60
"""The default number of tests to run for a change, which take about a minute."""
SLOW_S = 3.0
"""Tests that take longer, such as those that start a server, come last."""


def touched_tests(
    before: Path, after: Path, files: Collection[str], coverage: Coverage, most: int = MOST
) -> list[TestLines] | None:
    """The tests that ran the lines that a change affects, one case of each test before further cases.

    Args:
        before: the vLLM package for which the lines were measured.
        after: the package with the change.
        files: the files that differ, as paths below the package.
        coverage: the lines that the tests ran.
        most: the largest number of tests; 0 for all.

    Returns:
        None if a file is not serving code or exists on one side only, so that its tests are unknown.
    """
    if not set(files) <= {*serving_files(before)} & {*serving_files(after)}:
        return None
    tests: dict[str, TestLines] = {}
    for file in files:
        old, new = (package.joinpath(file).read_text() for package in (before, after))
        tests |= {test.test: test for test in coverage.running(file, changed_statements(old, old, new))}
    return in_running_order(spread(list(tests.values()))[: most or None])


def spread(tests: Sequence[TestLines], depth: Callable[[TestLines], int] = lambda _: 0) -> list[TestLines]:
    """Orders tests: one case of every test first, then a second case of every test, and so on.

    Tests with a greater depth (the number of changed lines that they run) come before all others.
    """
    of_target = Counter(test.target for test in tests)

    def preference(test: TestLines) -> tuple[int, float, str]:
        return -of_target[test.target], test.seconds, test.test

    rounds: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for test in sorted(tests, key=lambda test: (-depth(test), *preference(test))):
        rounds[test.test] = seen[test.function]
        seen[test.function] += 1
    return sorted(tests, key=lambda test: (-depth(test), rounds[test.test], *preference(test)))


def in_running_order(tests: Iterable[TestLines]) -> list[TestLines]:
    """Orders tests to run: slow ones last, module by module, and those of one target together."""

    def rank(test: TestLines) -> tuple[bool, str]:
        slow = test.seconds >= SLOW_S
        return slow, test.test.partition("::")[0] if slow else ""

    ranked = sorted(tests, key=rank)
    targets = list(dict.fromkeys(test.target for test in ranked))
    return sorted(ranked, key=lambda test: targets.index(test.target))
