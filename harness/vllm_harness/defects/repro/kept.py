"""The verdict of a defect as records of a run folder."""

from __future__ import annotations

import json

from vllm_harness.defects.entry import Defect
from vllm_harness.defects.repro.measured import Measured, agrees, expected_verdict
from vllm_harness.runs.records import Case, Outcome, RunFinding, Target


def target_of(measured: Measured) -> Target:
    """The vLLM that was asked."""
    return Target(id=measured.vllm or measured.version, title="vLLM", vllm=measured.vllm or measured.version)


def case_of(defect: Defect, measured: Measured) -> Case:
    """The defect on that vLLM: known where it shows as its entry says, a finding where it does not."""
    agreed = agrees(defect, measured)
    says = f"the entry says {expected_verdict(defect, measured.version)}, and it is {measured.verdict}"
    reason = measured.why if agreed else ": ".join(filter(None, (says, measured.why)))
    return Case(
        id=measured.id,
        target=target_of(measured).id,
        group=defect.kind,
        title=defect.title,
        outcome=_outcome(measured) if agreed else Outcome.FINDING,
        defects=(measured.id,) if measured.verdict == "reproduced" else (),
        reason=reason,
        details=json.dumps(measured.answers, indent=1, ensure_ascii=False) if measured.answers else "",
        findings=() if agreed else (RunFinding(message=says),),
    )


def _outcome(measured: Measured) -> Outcome:
    """Of a verdict that is as the entry says."""
    if measured.verdict == "not applicable":
        return Outcome.SKIPPED
    return Outcome.KNOWN if measured.verdict == "reproduced" else Outcome.PASSED
