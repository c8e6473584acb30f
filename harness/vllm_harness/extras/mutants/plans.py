"""The plans that this extra's pytest plugins read, and the lines that they write; does not import pytest."""

from __future__ import annotations

from pathlib import Path

from vllm_harness._files.strict import StrictModel
from vllm_harness.extras.review.coverage import Outcome

JUDGING, WATCHING = (
    "vllm_harness.extras.mutants.judging_plugin",
    "vllm_harness.extras.mutants.coverage_plugin",
)
COLLECTING = "vllm_harness.extras.mutants.collection_plugin"
"""The modules of the pytest plugins."""
JUDGING_PLAN, WATCHING_PLAN = "VLLM_HARNESS_JUDGING", "VLLM_HARNESS_WATCHING"
"""The environment variables that name the files of the plugins' plans."""
COLLECTED = "VLLM_HARNESS_COLLECTED"
"""The environment variable that names the file for the tests' texts, with a `TestText` on each line."""


class JudgingPlan(StrictModel):
    """The tests that judge a mutant, and the file for their outcomes.

    Attributes:
        tests: the ids of the tests, in the order in which they run.
        outcomes: the file to write, with a `TestOutcome` on each line.
    """

    tests: tuple[str, ...]
    outcomes: Path


class TestOutcome(StrictModel):
    """The outcome of a test on a mutant; if the test failed, with the reason."""

    __test__ = False

    test: str
    outcome: Outcome
    why: str = ""


class TestText(StrictModel):
    """The text of a test: the code of its function, and the values of its case."""

    __test__ = False

    test: str
    text: str


class WatchingPlan(StrictModel):
    """The files whose lines are watched, and the file for the coverage of the tests.

    Attributes:
        memory: the file whose bytes servers set; see `in_server/vllm_harness_lines.py`.
        starts: file in vLLM's package -> the position of the byte for its line 0 in `memory`.
        coverage: the coverage file to append to; tests that are already in it do not run again.
    """

    memory: Path
    starts: dict[str, int]
    coverage: Path
