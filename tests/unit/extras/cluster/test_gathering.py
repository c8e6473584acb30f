"""Records of suites that ran on several nodes get unique names in the run that gathers them."""

from __future__ import annotations

from pathlib import Path

from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.header import new_header
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import CaseRecord, ExchangeRecord, Kind, Outcome, RunFinding, TargetRecord
from vllm_harness.extras.cluster.suites.gathering import gather
from vllm_harness.extras.cluster.suites.on_node import SuiteResult

TARGET = TargetRecord(id="scripted-qwen3", title="qwen3")
FINDING = RunFinding(code="RS401", message="the deltas do not add up", exchange="77-1")
CASE = CaseRecord(id="test_a", target=TARGET.id, outcome=Outcome.FINDING, findings=(FINDING,))
SENT = ExchangeRecord(id="77-1", twin="77-2", target=TARGET.id, case="test_a", at=0.0)
OTHER = ExchangeRecord(id="77-2", twin="77-1", target=TARGET.id, case="test_a", at=1.0)


def test_equal_names_of_two_nodes_become_unique(tmp_path: Path) -> None:
    with RunWriter.begin(tmp_path, new_header(Kind.SUITES)) as writer:
        for number, version in enumerate(("0.31.0", "0.32.0"), start=1):
            result = SuiteResult(f"{version} tests/behaviours", f"node-{number}", (TARGET, CASE, SENT, OTHER))
            gather(result, writer, version)
    written = [record for _, record in records(tmp_path)]
    targets = [record.id for record in written if isinstance(record, TargetRecord)]
    cases = [record for record in written if isinstance(record, CaseRecord)]
    exchanges = {record.id: record for record in written if isinstance(record, ExchangeRecord)}
    assert targets == ["scripted-qwen3-0.31.0", "scripted-qwen3-0.32.0"] == [case.target for case in cases]
    assert [case.node for case in cases] == ["node-1", "node-2"]
    assert len(exchanges) == 4
    for case in cases:
        named = exchanges[case.findings[0].exchange]
        assert named.target == case.target == exchanges[named.twin].target
        assert exchanges[named.twin].twin == named.id


def test_targets_of_one_vllm_keep_their_names(tmp_path: Path) -> None:
    with RunWriter.begin(tmp_path, new_header(Kind.SUITES)) as writer:
        gather(SuiteResult("0.32.0 tests/behaviours", "node-1", (TARGET, CASE)), writer)
    assert [each.target for _, each in records(tmp_path) if isinstance(each, CaseRecord)] == [
        "scripted-qwen3"
    ]
