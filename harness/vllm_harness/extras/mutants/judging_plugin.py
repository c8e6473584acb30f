"""A pytest plugin (`-p`): runs the tests that judge a mutant, in their order, up to the first that fails."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from vllm_harness.extras.mutants.outcomes import outcome_of, why
from vllm_harness.extras.mutants.plans import JUDGING_PLAN, JudgingPlan, TestOutcome


def pytest_configure(config: pytest.Config) -> None:
    """Judges, where there is a plan."""
    if plan := os.environ.get(JUDGING_PLAN):
        config.pluginmanager.register(JudgingPlugin(JudgingPlan.model_validate_json(Path(plan).read_text())))


class JudgingPlugin:
    """The hooks."""

    def __init__(self, plan: JudgingPlan) -> None:
        self._plan = plan
        self._reports: list[pytest.TestReport] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keeps the tests of the plan, in its order; those that are there no more count as skipped."""
        places = {test: place for place, test in enumerate(self._plan.tests)}
        there = {item.nodeid for item in items}
        for test in (test for test in places if test not in there):
            self._write(TestOutcome(test=test, outcome="skipped", why="it is there no more"))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in places])
        items[:] = sorted(
            (item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the reports of the test that runs."""
        self._reports.append(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Writes the outcome, and ends the run where the test failed."""
        self._reports = []
        result = yield
        if outcome := outcome_of(self._reports):
            self._write(TestOutcome(test=item.nodeid, outcome=outcome, why=why(self._reports)))
            if outcome == "failed":
                item.session.shouldstop = "the mutant is killed"
        return result

    def _write(self, outcome: TestOutcome) -> None:
        with self._plan.outcomes.open("a") as outcomes:
            print(outcome.model_dump_json(), file=outcomes)
