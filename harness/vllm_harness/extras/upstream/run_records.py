"""Creates the records that a run folder contains for upstream's tests: a target, and a case for each test."""

from __future__ import annotations

from vllm_harness._machine.gpus import describe_device
from vllm_harness._runs.records import CaseRecord, Outcome, TargetRecord
from vllm_harness.extras.upstream.results import TestResult
from vllm_harness.extras.upstream.servers import UpstreamServers

TARGET = "upstream"
_OUTCOMES = {
    "passed": Outcome.PASSED,
    "defect": Outcome.KNOWN,
    "failed": Outcome.FINDING,
    "skipped": Outcome.SKIPPED,
    "newer": Outcome.SKIPPED,
    "": Outcome.CANCELLED,
}


def target_of(servers: UpstreamServers) -> TargetRecord:
    """The record of the target: the environment, lane and front end of the servers."""
    environment = servers.environment
    return TargetRecord(
        id=TARGET,
        title="vLLM's own tests",
        lane=servers.lane,
        vllm=environment.short_version,
        environment=environment.describe(),
        frontend=servers.frontend,
        device=describe_device(environment.device),
    )


def case_of(file: str, test: str, result: TestResult, started: float | None = None) -> CaseRecord:
    """The record of a test, in the group of its file."""
    known = result.outcome == "defect"
    return CaseRecord(
        id=f"{file}::{test}",
        target=TARGET,
        group=file.removeprefix("tests/"),
        outcome=_OUTCOMES[result.outcome],
        defects=(result.why,) if known else (),
        reason="" if known else result.why,
        details=result.details,
        started=started,
        seconds=result.seconds,
        attempts=result.retries + 1,
    )
