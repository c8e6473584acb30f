"""A pytest plugin (`-p`) that records which lines of vLLM each test runs, and the outcome of the test."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._testing.session import TARGET
from vllm_harness.extras.mutants.outcomes import OutcomePlugin
from vllm_harness.extras.mutants.parsers.coverage import ranges
from vllm_harness.extras.mutants.plans import WATCHING_PLAN, WatchingPlan
from vllm_harness.extras.review.coverage import Outcome, TestLines, read_coverage


def pytest_configure(config: pytest.Config) -> None:
    """Watches the lines if an environment variable names a plan."""
    if plan := os.environ.get(WATCHING_PLAN):
        config.pluginmanager.register(
            WatchingPlugin(WatchingPlan.model_validate_json(Path(plan).read_text()))
        )


class WatchingPlugin(OutcomePlugin):
    """The pytest hooks that record the lines that servers run during a test's code and during its setup."""

    def __init__(self, plan: WatchingPlan) -> None:
        super().__init__()
        self._plan = plan
        self._known = read_coverage(plan.coverage)
        with plan.memory.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._lines: dict[str, str] = {}
        self._start: dict[str, str] = {}
        self._seconds = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselects the tests whose lines are already known."""
        done = [item for item in items if item.nodeid in self._known]
        items[:] = [item for item in items if item.nodeid not in self._known and TARGET in item.stash]
        config.hook.pytest_deselected(items=done)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Records the lines that run during setup, such as the start of a server."""
        self._lines, self._seconds = {}, 0.0
        self._memory[:] = bytes(len(self._memory))
        try:
            return (yield)
        finally:
            self._start = lines_of(bytes(self._memory), self._plan.starts)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Records the lines that run during the test's own code."""
        self._memory[:] = bytes(len(self._memory))
        started = time.monotonic()
        try:
            return (yield)
        finally:
            self._seconds = time.monotonic() - started
            self._lines = lines_of(bytes(self._memory), self._plan.starts)

    def record(self, item: pytest.Item, outcome: Outcome, reports: Sequence[pytest.TestReport]) -> None:
        """Writes the lines and the outcome of the test."""
        lines = TestLines(
            test=item.nodeid,
            target=item.stash[TARGET].id,
            outcome=outcome,
            seconds=round(self._seconds, 2),
            lines=self._lines,
            start=self._start,
        )
        with self._plan.coverage.open("a") as file:
            print(lines.model_dump_json(), file=file)


def lines_of(memory: bytes, starts: Mapping[str, int]) -> dict[str, str]:
    """File -> its lines that ran, from the bytes that servers have set; only for files with such lines."""
    ends = [*list(starts.values())[1:], len(memory)]
    return {
        file: ranges([line for line in range(end - start) if memory[start + line]])
        for (file, start), end in zip(starts.items(), ends, strict=True)
        if any(memory[start:end])
    }
