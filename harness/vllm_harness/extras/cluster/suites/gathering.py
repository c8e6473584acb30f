"""Combines the records of suites that ran on several machines into one run."""

from __future__ import annotations

from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import AnyRecord, CaseRecord, ExchangeRecord, LogLines, Series, TargetRecord
from vllm_harness.extras.cluster.suites.on_node import SuiteResult


def gather(result: SuiteResult, writer: RunWriter, version: str = "") -> None:
    """Writes the records of a suite to a run.

    Args:
        result: the result of the suite.
        writer: writes the run.
        version: the version to add to the names of targets; empty if the run tests only one vLLM.
    """
    for record in result.records:
        writer.write(_renamed(record, result, version))


def _renamed(record: AnyRecord, result: SuiteResult, version: str) -> AnyRecord:
    """The record with ids that are unique in the whole run; ids of exchanges are only unique in a process."""

    def target(name: str) -> str:
        return f"{name}-{version}" if version and name else name

    def exchange(name: str) -> str:
        return f"{result.cell} {name}" if name else name

    match record:
        case TargetRecord():
            return record.model_copy(update={"id": target(record.id)})
        case CaseRecord():
            findings = tuple(
                finding.model_copy(update={"exchange": exchange(finding.exchange)})
                for finding in record.findings
            )
            about = {"target": target(record.target), "findings": findings, "node": result.node}
            return record.model_copy(update=about)
        case ExchangeRecord():
            names = {"id": exchange(record.id), "twin": exchange(record.twin)}
            return record.model_copy(update={**names, "target": target(record.target)})
        case LogLines() | Series():
            return record.model_copy(update={"target": target(record.target)})
    return record
