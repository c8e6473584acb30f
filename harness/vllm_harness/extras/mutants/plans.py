"""What the runs of pytest are told that judge and watch, and what they tell; this module needs no pytest."""

from __future__ import annotations

from pathlib import Path

from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.changed.coverage import Outcome

JUDGING, WATCHING = (
    "vllm_harness.extras.mutants.judging_plugin",
    "vllm_harness.extras.mutants.coverage_plugin",
)
COLLECTING = "vllm_harness.extras.mutants.collection_plugin"
"""The plugins, by their modules."""
JUDGING_PLAN, WATCHING_PLAN = "VLLM_HARNESS_JUDGING", "VLLM_HARNESS_WATCHING"
"""Variables with the files of their plans."""
COLLECTED = "VLLM_HARNESS_COLLECTED"
"""The variable with the file that gets a `TestText` a line."""


class JudgingPlan(StrictModel):
    """What runs, and where its outcomes go.

    Attributes:
        tests: their ids, in the order in which they run.
        outcomes: the file that gets a `TestOutcome` a line.
    """

    tests: tuple[str, ...]
    outcomes: Path


class TestOutcome(StrictModel):
    """What a test came to on a mutant; `why` of a failure."""

    __test__ = False

    test: str
    outcome: Outcome
    why: str = ""


class TestText(StrictModel):
    """What a test says: the code of its function, and the values of its case."""

    __test__ = False

    test: str
    text: str


class WatchingPlan(StrictModel):
    """What is watched, and where it is kept.

    Attributes:
        memory: the file whose bytes servers set, see `in_server/vllm_harness_lines.py`.
        starts: of each file below vLLM's package, the byte that its first line would have counted from 0.
        kept: the file of coverage; tests that it has do not run again.
    """

    memory: Path
    starts: dict[str, int]
    kept: Path
