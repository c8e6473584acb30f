"""A pytest plugin (`-p`) that runs the tests of a mutant in the order of a plan, until one fails."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from vllm_harness.extras.mutants.outcomes import OutcomePlugin, why
from vllm_harness.extras.mutants.plans import JUDGING_PLAN, JudgingPlan, TestOutcome
from vllm_harness.extras.review.coverage import Outcome


def pytest_configure(config: pytest.Config) -> None:
    """Judges a mutant if an environment variable names a plan."""
    if plan := os.environ.get(JUDGING_PLAN):
        config.pluginmanager.register(JudgingPlugin(JudgingPlan.model_validate_json(Path(plan).read_text())))


class JudgingPlugin(OutcomePlugin):
    """The pytest hooks that select the tests, write their outcomes, and stop after a failure."""

    def __init__(self, plan: JudgingPlan) -> None:
        super().__init__()
        self._plan = plan

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Selects the tests in the plan, in its order; tests that no longer exist count as skipped."""
        places = {test: place for place, test in enumerate(self._plan.tests)}
        collected = {item.nodeid for item in items}
        for test in (test for test in places if test not in collected):
            self._write(TestOutcome(test=test, outcome="skipped", why="the test no longer exists"))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in places])
        items[:] = sorted(
            (item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid]
        )

    def record(self, item: pytest.Item, outcome: Outcome, reports: Sequence[pytest.TestReport]) -> None:
        """Writes the outcome, and ends the run if the test failed."""
        self._write(TestOutcome(test=item.nodeid, outcome=outcome, why=why(reports)))
        if outcome == "failed":
            item.session.shouldstop = "the mutant is killed"

    def _write(self, outcome: TestOutcome) -> None:
        with self._plan.outcomes.open("a") as outcomes:
            print(outcome.model_dump_json(), file=outcomes)
