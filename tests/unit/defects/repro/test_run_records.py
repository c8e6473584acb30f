"""Tests the conversion of verdicts to records in a run folder."""

from __future__ import annotations

import pytest

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.run import case_of, target_of
from vllm_harness._defects.repro.verdict import Measured, Verdict
from vllm_harness._runs.records import Outcome

DEFECT = Defect(id="vllm-1", title="It is wrong", kind="defect", versions="<0.30")


@pytest.mark.parametrize(
    ("version", "verdict", "outcome"),
    [
        ("0.29.0", "reproduced", Outcome.KNOWN),
        ("0.29.0", "fixed", Outcome.FINDING),
        ("0.32.0", "fixed", Outcome.PASSED),
        ("0.32.0", "reproduced", Outcome.FINDING),
        ("0.32.0", "not applicable", Outcome.SKIPPED),
        ("0.29.0", "other failure", Outcome.FINDING),
    ],
)
def test_a_verdict_is_compared_with_its_entry(version: str, verdict: Verdict, outcome: Outcome) -> None:
    measured = Measured(id="vllm-1", vllm=version, version=version, verdict=verdict, why="because")
    case = case_of(DEFECT, measured)
    assert (case.outcome, case.target, case.group) == (outcome, target_of(measured).id, "defect")
    assert case.defects == (("vllm-1",) if verdict == "reproduced" else ())
    assert "because" in case.reason
    assert bool(case.findings) == (outcome is Outcome.FINDING)
