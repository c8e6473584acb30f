"""The record of a test case in a run folder, which is made from pytest's reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._configuration.targets import Target
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import CaseRecord, Outcome, RunFinding
from vllm_harness._testing.cases import CASE_OF, CaseWriter, case_id, case_of, group_of
from vllm_harness._testing.defects import DEFECT_OF
from vllm_harness._testing.recorder import TARGET_OF
from vllm_harness._testing.results import MISSED, TargetResult

QWEN3 = Target(load_models().get("qwen3"), "scripted")
TEST = f"tests/behaviours/test_a.py::test_t[{QWEN3.id}-3]"


def report(outcome: Any, when: Any = "call", longrepr: Any = None, **more: Any) -> pytest.TestReport:
    """A pytest report about TEST."""
    location = ("a.py", 1, "test_t")
    report = pytest.TestReport(TEST, location, {}, outcome, longrepr, when, duration=0.25, start=7.0)
    setattr(report, TARGET_OF, QWEN3.id)
    for name, value in more.items():
        setattr(report, name, value)
    return report


def around(*calls: pytest.TestReport, **facts: Any) -> list[pytest.TestReport]:
    """Puts reports between the reports of a setup and a teardown that pass."""
    return [report("passed", "setup"), *calls, report("passed", "teardown", **{CASE_OF: facts})]


def test_a_passed_test() -> None:
    known = {"code": "RO101", "message": "missing", "known": "vllm-1"}
    case = case_of(around(report("passed"), covers=["VR-001"], findings=[known]))
    assert case == CaseRecord(
        id="tests/behaviours/test_a.py::test_t[3]",
        target="scripted-qwen3",
        group="behaviours/test_a",
        covers=("VR-001",),
        outcome=Outcome.PASSED,
        defects=("vllm-1",),
        findings=(RunFinding(**known),),
        started=7.0,
        seconds=0.75,
    )


def test_a_failure_without_a_rule_has_its_own_finding() -> None:
    case = case_of(around(report("failed", longrepr="assert 1 == 2\nmore"), findings=[]))
    assert (case.outcome, case.reason, case.details) == (
        Outcome.FINDING,
        "assert 1 == 2",
        "assert 1 == 2\nmore",
    )
    assert case.findings == (RunFinding(message="assert 1 == 2"),)
    rule = {"code": "RO101", "message": "missing"}
    assert case_of(around(report("failed", longrepr="x"), findings=[rule])).findings == (RunFinding(**rule),)


def test_the_worst_phase_counts() -> None:
    reports = [report("passed", "setup"), report("passed"), report("failed", "teardown", "left over")]
    assert case_of(reports).outcome is Outcome.FINDING
    assert case_of(reports).reason == "teardown: left over"


def test_a_known_defect_names_its_id() -> None:
    shown = report("skipped", wasxfail="why", **{DEFECT_OF: ("vllm-2", "AssertionError: wrong")})
    case = case_of(around(shown))
    assert (case.outcome, case.defects, case.reason) == (
        Outcome.KNOWN,
        ("vllm-2",),
        "AssertionError: wrong",
    )


def test_skips_misses_and_interrupted_tests() -> None:
    skipped = report("skipped", "setup", ("a.py", 1, "Skipped: [slow] minutes"))
    assert case_of([skipped]).outcome is Outcome.SKIPPED
    assert case_of([skipped]).reason == "[slow] minutes"
    missed = case_of(around(report(MISSED, longrepr="Rome")))
    assert (missed.outcome, missed.reason) == (
        Outcome.SKIPPED,
        "the model's words were not the expected ones: Rome",
    )
    assert case_of([report("passed", "setup")]).outcome is Outcome.CANCELLED


def test_attempts_are_counted() -> None:
    case = case_of(around(report("rerun", longrepr="other words"), report("passed")))
    assert (case.outcome, case.attempts) == (Outcome.PASSED, 2)


def test_ids_do_not_depend_on_the_target() -> None:
    assert case_id("a.py::test[live-qwen3]", "live-qwen3") == "a.py::test"
    assert case_id("a.py::test[live-qwen3-seed2]", "live-qwen3") == "a.py::test[seed2]"
    assert case_id("a.py::test[x-live-qwen3]", "live-qwen3") == "a.py::test[x]"
    assert group_of("tests/behaviours/test_a.py::test") == "behaviours/test_a"
    assert group_of("my_tests/test_a.py::Test::test") == "my_tests/test_a"


def test_a_target_is_written_again_when_it_changes(tmp_path: Path) -> None:
    result = TargetResult()
    with RunWriter(tmp_path) as writer:
        cases = CaseWriter(writer, [QWEN3], {QWEN3.id: result}.__getitem__)
        for given in around(report("passed")):
            cases.pytest_runtest_logreport(given)
        cases.pytest_runtest_logfinish(TEST)
        cases.pytest_runtest_logreport(report("passed", "setup"))
        result.startup_s = 2.0
        cases.pytest_sessionfinish()
    kinds = [(record.type, getattr(record, "outcome", None)) for _, record in records(tmp_path)]
    assert kinds == [
        ("target", None),
        ("case", Outcome.PASSED),
        ("target", None),
        ("case", Outcome.CANCELLED),
    ]
