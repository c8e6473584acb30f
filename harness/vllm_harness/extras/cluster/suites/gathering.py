"""The records of suites that ran on many machines, made those of one run."""

from __future__ import annotations

from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import AnyRecord, CaseRecord, ExchangeRecord, LogLines, Series, TargetRecord
from vllm_harness.extras.cluster.suites.on_node import SuiteResult


def gather(result: SuiteResult, writer: RunWriter, version: str = "") -> None:
    """Writes the records of a suite.

    Args:
        result: of it.
        writer: of the run.
        version: that tells its targets from those on another vLLM; empty where there is one.
    """
    for record in result.records:
        writer.write(_adopted(record, result, version))


def _adopted(record: AnyRecord, result: SuiteResult, version: str) -> AnyRecord:
    """A record whose names are unique in the whole run: ids of exchanges are made of a process's number."""

    def target(name: str) -> str:
        return f"{name}-{version}" if version and name else name

    def exchange(name: str) -> str:
        return f"{result.cell} {name}" if name else name

    match record:
        case TargetRecord():
            return record.model_copy(update={"id": target(record.id)})
        case CaseRecord():
            findings = tuple(
                each.model_copy(update={"exchange": exchange(each.exchange)}) for each in record.findings
            )
            about = {"target": target(record.target), "findings": findings, "node": result.node}
            return record.model_copy(update=about)
        case ExchangeRecord():
            about = {
                "id": exchange(record.id),
                "twin": exchange(record.twin),
                "target": target(record.target),
            }
            return record.model_copy(update=about)
        case LogLines() | Series():
            return record.model_copy(update={"target": target(record.target)})
    return record
