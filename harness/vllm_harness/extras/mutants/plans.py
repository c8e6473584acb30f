"""The plans that the pytest plugins of this extra read, and the lines that they write; needs no pytest."""

from __future__ import annotations

from pathlib import Path

from vllm_harness._files.strict import StrictModel
from vllm_harness.extras.review.coverage import Outcome

JUDGING, WATCHING = (
    "vllm_harness.extras.mutants.judging_plugin",
    "vllm_harness.extras.mutants.coverage_plugin",
)
COLLECTING = "vllm_harness.extras.mutants.collection_plugin"
"""The modules of the plugins."""
JUDGING_PLAN, WATCHING_PLAN = "VLLM_HARNESS_JUDGING", "VLLM_HARNESS_WATCHING"
"""The variables that name the files of their plans."""
COLLECTED = "VLLM_HARNESS_COLLECTED"
"""The variable that names the file for the texts, a `TestText` a line."""


class JudgingPlan(StrictModel):
    """The tests that judge a mutant, and the file for their outcomes.

    Attributes:
        tests: ids of tests, in the order in which they run.
        outcomes: the file to write, a `TestOutcome` a line.
    """

    tests: tuple[str, ...]
    outcomes: Path


class TestOutcome(StrictModel):
    """The outcome of a test on a mutant, and why it failed if it did."""

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
        memory: the file whose bytes servers set, see `in_server/vllm_harness_lines.py`.
        starts: file below vLLM's package -> the byte of its line 0, the one before its first line.
        coverage: the file of coverage; the tests in it do not run again.
    """

    memory: Path
    starts: dict[str, int]
    coverage: Path
