"""A pytest plugin (`-p`): keeps the lines of vLLM that each test runs, and its outcome."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._regression.changed.coverage import TestLines, read_coverage
from vllm_harness._testing.session import TARGET
from vllm_harness.extras.mutants.outcomes import outcome_of
from vllm_harness.extras.mutants.parsers.coverage import ranges
from vllm_harness.extras.mutants.plans import WATCHING_PLAN, WatchingPlan


def pytest_configure(config: pytest.Config) -> None:
    """Watches, where there is a plan."""
    if plan := os.environ.get(WATCHING_PLAN):
        config.pluginmanager.register(
            WatchingPlugin(WatchingPlan.model_validate_json(Path(plan).read_text()))
        )


class WatchingPlugin:
    """The hooks: of a test counts what servers run while its own code does and, apart, while it is set up."""

    def __init__(self, plan: WatchingPlan) -> None:
        self._plan = plan
        self._known = read_coverage(plan.kept)
        with plan.memory.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._lines: dict[str, str] = {}
        self._start: dict[str, str] = {}
        self._seconds = 0.0
        self._reports: list[pytest.TestReport] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out what is kept already."""
        done = [item for item in items if item.nodeid in self._known]
        items[:] = [item for item in items if item.nodeid not in self._known and TARGET in item.stash]
        config.hook.pytest_deselected(items=done)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Takes the lines of a server that the test is the first to need."""
        self._memory[:] = bytes(len(self._memory))
        try:
            return (yield)
        finally:
            self._start = lines_of(bytes(self._memory), self._plan.starts)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Takes the lines that run meanwhile."""
        self._memory[:] = bytes(len(self._memory))
        started = time.monotonic()
        try:
            return (yield)
        finally:
            self._seconds = time.monotonic() - started
            self._lines = lines_of(bytes(self._memory), self._plan.starts)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the reports of the test that runs."""
        self._reports.append(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Writes what the test came to."""
        self._lines, self._start, self._seconds, self._reports = {}, {}, 0.0, []
        result = yield
        outcome = outcome_of(self._reports)
        if outcome is not None:
            of_test = TestLines(
                test=item.nodeid,
                target=item.stash[TARGET].id,
                outcome=outcome,
                seconds=round(self._seconds, 2),
                lines=self._lines,
                start=self._start,
            )
            with self._plan.kept.open("a") as kept:
                print(of_test.model_dump_json(), file=kept)
        return result


def lines_of(memory: bytes, starts: Mapping[str, int]) -> dict[str, str]:
    """The lines that ran of each file that has some, from the bytes that servers have set."""
    ends = [*list(starts.values())[1:], len(memory)]
    return {
        file: ranges([line for line in range(end - start) if memory[start + line]])
        for (file, start), end in zip(starts.items(), ends, strict=True)
        if any(memory[start:end])
    }
