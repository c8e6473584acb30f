"""The tests of the suites that ran the lines which a change of vLLM's serving code touches."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from vllm_harness._regression.changed.choice import choose
from vllm_harness._regression.changed.coverage import Coverage, TestLines
from vllm_harness._regression.changed.serving import changed_statements, serving_files

MOST = 60
"""Tests that a change is judged by: those of a minute."""


def touched_tests(
    before: Path, after: Path, files: Collection[str], coverage: Coverage, most: int = MOST
) -> list[TestLines] | None:
    """The tests that ran the lines that a change touches, other tests before other cases of the same.

    Args:
        before: vLLM's package as it was when the lines were measured.
        after: the package with the change.
        files: that differ, below the package.
        coverage: what the tests ran.
        most: so many at most; 0: all.

    Returns:
        None where a file is no serving code, or is there on one side only: nothing is known of it then.
    """
    if not set(files) <= {*serving_files(before)} & {*serving_files(after)}:
        return None
    found: dict[str, TestLines] = {}
    for file in files:
        old, new = (package.joinpath(file).read_text() for package in (before, after))
        running = coverage.running(file, changed_statements(old, old, new))
        found |= {test.test: test for test in running}
    return choose(list(found.values()), most)
