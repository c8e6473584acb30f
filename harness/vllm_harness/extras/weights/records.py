"""The records of a weights check in a run folder: a target for the launch, and a case for each dtype."""

from __future__ import annotations

from vllm_harness._runs.records import CaseRecord, RunFinding, TargetRecord, case_outcome
from vllm_harness._server.launch import Launch
from vllm_harness.extras.weights.check import DtypeCheck


def target_of(launch: Launch) -> TargetRecord:
    """The record of the server that is checked."""
    return TargetRecord(
        id=launch.entry.name,
        title=launch.entry.name,
        family=launch.entry.family,
        lane=launch.lane,
        vllm=launch.environment.short_version,
        environment=launch.describe(),
        frontend=launch.frontend,
        device=launch.environment.device,
    )


def case_of(check: DtypeCheck, target: str) -> CaseRecord:
    """The record for one dtype; it has a finding if the differences exceed what rounding explains."""
    comparison = check.comparison
    figures = (
        f"{comparison.same} of {len(comparison.prefixes)} answers are the same; log-probabilities differ by "
        f"{comparison.difference.mean:.2g} on average, and by {comparison.noise.mean:.2g} from rounding alone"
    )
    wrong = comparison.verdict == "wrong"
    findings = (RunFinding(message=figures),) if wrong else ()
    return CaseRecord(
        id=comparison.dtype,
        target=target,
        group="weights",
        title=f"{comparison.dtype}: {comparison.verdict}",
        outcome=case_outcome(findings),
        reason=figures if wrong else "",
        details=figures,
        findings=findings,
    )
