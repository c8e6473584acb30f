"""Prints the progress of a run in whole lines, and lets other output through pytest's capturing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any

import pytest

from vllm_harness._terminal.pace import Pace

EVERY_S = 15.0
NAME = "vllm_harness_progress"


class RunProgress:
    """A pytest plugin that prints a line about every 15 seconds.

    `312 of 1173 tests, 1 failed, 1:10 elapsed, about 3:00 left (scripted-qwen3)`

    Args:
        reporter: pytest's terminal reporter.
        total: the number of tests.
        target: returns the target of the test with a node id; empty for a test without a target.
        clock: returns a time in seconds.
    """

    def __init__(
        self, reporter: Any, total: int, target: Callable[[str], str], clock: Callable[[], float] = monotonic
    ) -> None:
        self._reporter, self._target, self._clock = reporter, target, clock
        self._pace, self._failed = Pace(total, clock), set[str]()
        self._printed = clock()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts a failure."""
        if report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Counts a test, and prints a line if the previous line is old enough."""
        self._pace.advance()
        if self._clock() - self._printed < EVERY_S or self._pace.done >= self._pace.total:
            return
        self._printed = self._clock()
        self._print(self._line(self._target(nodeid)))

    def _line(self, target: str) -> str:
        failed = f", {len(self._failed)} failed" if self._failed else ""
        at = f" ({target})" if target else ""
        return f"{self._pace.done} of {self._pace.total} tests{failed}, {self._pace}{at}"

    def _print(self, line: str) -> None:
        self._reporter.ensure_newline()
        if self._reporter._tw.width_of_current_line:  # with -q, ensure_newline does not see pytest's dots
            self._reporter._tw.line()
        self._reporter._tw.line(line)
        self._reporter.flush()


def follow(session: pytest.Session, target: Callable[[pytest.Item], str]) -> None:
    """Shows the progress of the collected tests, unless the output is a terminal or the run has `-qq`."""
    config = session.config
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or reporter._tw._file.isatty() or config.option.verbose < -1:
        return
    targets = {item.nodeid: target(item) for item in session.items}
    config.pluginmanager.register(RunProgress(reporter, len(session.items), targets.__getitem__), NAME)


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """A context in which pytest does not capture output."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    return capture.global_and_fixture_disabled() if capture else nullcontext()
