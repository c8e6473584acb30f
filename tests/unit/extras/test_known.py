"""`known` means the same in every report: neither passed nor failed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.unit.report.runs import case, run_in
from tests.unit.testing.test_cases import around
from tests.unit.testing.test_cases import report as pytest_report
from vllm_harness._protocol import Exchange, Finding
from vllm_harness._protocol.core.findings import Severity
from vllm_harness._runs.records import CaseRecord, Outcome, RunFinding, case_outcome
from vllm_harness._runs.report import comparison
from vllm_harness._runs.report.compare import compare
from vllm_harness._runs.report.github import github
from vllm_harness._runs.report.junit import junit
from vllm_harness._runs.report.markdown import markdown
from vllm_harness._scenarios.mismatches import TurnMismatch
from vllm_harness._scenarios.results import Conversation, TurnResult
from vllm_harness._scenarios.run_records import records_of
from vllm_harness._scenarios.transports import find_transport
from vllm_harness._testing.cases import case_of
from vllm_harness._testing.defects import DEFECT_OF
from vllm_harness._testing.recorder import ReportRecorder
from vllm_harness._testing.results import TargetResult
from vllm_harness.extras.html import contents
from vllm_harness.extras.html.packing import Blocks

PASSED, KNOWN, FINDING = Outcome.PASSED, Outcome.KNOWN, Outcome.FINDING
MISMATCH = RunFinding(message="a call is lost")
EXPLAINED = RunFinding(message="a call is lost", known="vllm-1")
COUNTS = {PASSED: 3, KNOWN: 2, FINDING: 1}


def mixed() -> list[CaseRecord]:
    """Three cases that passed, two with known defects, and one with a known defect and another failure."""
    findings = [(), (), (), (EXPLAINED,), (EXPLAINED,), (EXPLAINED, MISMATCH)]
    return [
        case(
            f"test_{number}",
            case_outcome(of_case),
            findings=of_case,
            defects=tuple(finding.known for finding in of_case if finding.known),
            reason="a call is lost" if of_case else "",
        )
        for number, of_case in enumerate(findings)
    ]


def test_every_report_has_the_same_counts(tmp_path: Path) -> None:
    run = run_in(tmp_path / "run", mixed())
    assert Counter(each.outcome for each in run.cases) == COUNTS
    text = markdown(run, {})
    assert "| target | vLLM | passed | known | findings |" in text
    assert "| `scripted-qwen3` | `0.32.0 python` | 3 | 2 | 1 |" in text
    (suite,) = ElementTree.fromstring(junit(run))
    assert [suite.attrib[name] for name in ("tests", "failures", "skipped")] == ["6", "1", "2"]
    skips = [(skip.attrib["type"], skip.attrib["message"]) for skip in suite.iter("skipped")]
    assert skips == [("known defect", "vllm-1: a call is lost")] * 2
    kinds = Counter(line.partition(" ")[0].partition("::")[2] for line in github(run).splitlines())
    assert kinds["error"] == 1
    assert "::notice::cases that fail only by known defects: 2" in github(run)
    index = contents.index_of(contents.read_run(run.folder), Blocks(1_000_000), {})
    assert Counter(contents.OUTCOMES[row[4]] for row in index["cases"]) == COUNTS


def test_a_comparison_tells_known_from_passed_and_failed(tmp_path: Path) -> None:
    before, after = run_in(tmp_path / "a", mixed()), run_in(tmp_path / "b", mixed())
    assert comparison.headline(compare(before, after)) == "3 still wrong, 3 same"
    all_passed = run_in(tmp_path / "c", [case(f"test_{number}") for number in range(6)])
    assert comparison.headline(compare(all_passed, after)) == "3 worse, 3 same"
    assert comparison.headline(compare(before, all_passed)) == "3 better, 3 same"


@pytest.mark.parametrize(
    ("problems", "more", "outcome"),
    [
        ([], {}, PASSED),
        ([EXPLAINED], {}, KNOWN),
        ([], {"defects": ("vllm-1",)}, KNOWN),
        ([EXPLAINED, MISMATCH], {}, FINDING),
        ([MISMATCH], {"cancelled": True}, FINDING),
        ([RunFinding(message="new type", severity="info")], {}, PASSED),
        ([EXPLAINED], {"skipped": True}, KNOWN),
        ([], {"skipped": True}, Outcome.SKIPPED),
        ([EXPLAINED], {"cancelled": True}, Outcome.CANCELLED),
        ([], {"not_judged": True}, Outcome.NOT_JUDGED),
        ([EXPLAINED], {"not_judged": True}, KNOWN),
    ],
)
def test_the_outcome_of_a_case(problems: list[RunFinding], more: dict[str, Any], outcome: Outcome) -> None:
    assert case_outcome(problems, **more) is outcome


def test_the_table_of_pytest_counts_as_the_run_folder_does() -> None:
    shown = {"wasxfail": "why", DEFECT_OF: ("vllm-1", "AssertionError: wrong")}
    tests = [
        around(pytest_report("passed")),
        around(pytest_report("skipped", **shown)),
        around(pytest_report("failed", longrepr="assert 1 == 2")),
    ]
    result = TargetResult()
    recorder = ReportRecorder(lambda _: result)
    for reports in tests:
        for one in reports:
            recorder.pytest_runtest_logreport(one)
    assert Counter(case_of(reports).outcome for reports in tests) == {PASSED: 1, KNOWN: 1, FINDING: 1}
    number = result.counts()
    assert (number["passed"], number["known"], number["failed"]) == (1, 1, 1)


def test_the_table_of_a_scenario_counts_as_the_run_folder_does() -> None:
    known = Finding("CC101", Severity.ERROR, 0, "$", "missing", known="vllm-1")
    turns = [
        TurnResult("right"),
        TurnResult("deviates", findings=[known]),
        TurnResult("lost", mismatches=[TurnMismatch("calls", "look", "no call", known="vllm-1")]),
        TurnResult("wrong", findings=[replace(known, known="")]),
    ]
    for turn in turns:
        turn.exchange = Exchange({"model": "m"}, path="/v1/chat/completions")
    conversation = Conversation(find_transport("chat"), turns)
    assert [turn.state for turn in turns] == ["passed", "known", "known", "failed"]
    records = [each for each in records_of(conversation, "t", 0.0, ()) if isinstance(each, CaseRecord)]
    assert [each.outcome for each in records] == [PASSED, KNOWN, KNOWN, FINDING]
    assert [bool(re.search("chat, turn wrong", problem)) for problem in conversation.problems()] == [True]
