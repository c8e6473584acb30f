"""The records of a review in its run folder."""

from __future__ import annotations

from pathlib import Path

from tests.unit.extras.review.reviews import failure, review
from tests.unit.regression.test_known_defects import cell
from vllm_harness._regression.results.compare import PARSERS_ARE_MADE
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.header import new_header
from vllm_harness._runs.records import Kind, Outcome
from vllm_harness._runs.report.run import read_run
from vllm_harness.extras.review.outputs import write_records
from vllm_harness.extras.review.parsers import PartResult


def test_parsers_that_are_not_made_any_more_are_one_finding(tmp_path: Path) -> None:
    not_made = cell("in-process", {}).model_copy(update={"start_error": "KeyError: x", "cases": {}})
    regressed = failure(case=PARSERS_ARE_MADE).model_copy(update={"group": not_made.group})
    result = PartResult("parsers in process", failures=(regressed,), cells=(not_made,))
    with RunWriter.resume(tmp_path, new_header(Kind.REGRESSION, "review"), ()) as writer:
        write_records(review(regressed), [result], writer)
    (case,) = read_run(tmp_path).cases
    assert (case.outcome, case.reason) == (Outcome.FINDING, regressed.title)
