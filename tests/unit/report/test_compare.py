"""Comparisons of two runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.report.runs import QWEN3, case, run_in
from vllm_harness._errors import UsageError
from vllm_harness._runs.records import CaseRecord, Outcome, RunFinding, TargetRecord
from vllm_harness._runs.report import comparison
from vllm_harness._runs.report.compare import OutcomeChange, compare

PASSED, KNOWN, FINDING = Outcome.PASSED, Outcome.KNOWN, Outcome.FINDING


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (case("t"), case("t"), OutcomeChange.SAME),
        (case("t"), case("t", FINDING), OutcomeChange.WORSE),
        (case("t"), case("t", KNOWN, defects=("a",)), OutcomeChange.WORSE),
        (case("t", KNOWN, defects=("a",)), case("t", FINDING), OutcomeChange.WORSE),
        (case("t", FINDING), case("t"), OutcomeChange.BETTER),
        (case("t", KNOWN, defects=("a",)), case("t"), OutcomeChange.BETTER),
        (case("t", KNOWN, defects=("a",)), case("t", KNOWN, defects=("a",), reason="x"), OutcomeChange.STILL),
        (case("t", KNOWN, defects=("a",)), case("t", KNOWN, defects=("b",)), OutcomeChange.OTHERWISE),
        (case("t", FINDING), case("t", KNOWN, defects=("b",)), OutcomeChange.OTHERWISE),
        (
            case("t", FINDING, findings=(RunFinding(code="RO101", message="x"),)),
            case("t", FINDING, findings=(RunFinding(code="RO102", message="x"),)),
            OutcomeChange.OTHERWISE,
        ),
        (case("t"), case("t", Outcome.SKIPPED), OutcomeChange.GONE),
        (case("t", Outcome.SKIPPED), case("t", FINDING), OutcomeChange.NEW),
        (case("t", Outcome.SKIPPED), case("t", Outcome.SKIPPED), OutcomeChange.SAME),
    ],
)
def test_the_change_of_a_case(
    tmp_path: Path, before: CaseRecord, after: CaseRecord, change: OutcomeChange
) -> None:
    (compared,) = compare(run_in(tmp_path / "a", [before]), run_in(tmp_path / "b", [after]))
    assert compared.change is change


def test_cases_that_only_one_run_has(tmp_path: Path) -> None:
    compared = compare(run_in(tmp_path / "a", [case("old")]), run_in(tmp_path / "b", [case("new")]))
    assert [(each.case.id.partition("::")[2], each.change) for each in compared] == [
        ("new", OutcomeChange.NEW),
        ("old", OutcomeChange.GONE),
    ]


def test_targets_of_the_same_model_are_paired(tmp_path: Path) -> None:
    other = QWEN3.model_copy(update={"id": "later", "vllm": "0.33.0"})
    third = TargetRecord(id="other", title="gpt-oss")
    before = run_in(tmp_path / "a", [case("t")], [QWEN3, third])
    after = run_in(tmp_path / "b", [case("t", FINDING, target="later")], [other])
    assert [each.change for each in compare(before, after)] == [OutcomeChange.WORSE]


def test_runs_of_different_models_are_refused(tmp_path: Path) -> None:
    others = [TargetRecord(id="a", title="a"), TargetRecord(id="b", title="b")]
    with pytest.raises(UsageError, match="no target in common"):
        compare(run_in(tmp_path / "a", [case("t")]), run_in(tmp_path / "b", [], others))


def test_the_reports_of_a_comparison(tmp_path: Path) -> None:
    before = run_in(tmp_path / "a", [case("t"), case("u", KNOWN, defects=("vllm-1",)), case("same")])
    after = run_in(tmp_path / "b", [case("t", FINDING, reason="it `is` wrong"), case("u"), case("same")])
    compared = compare(before, after)
    assert comparison.headline(compared) == "1 worse, 1 better, 1 same"
    text = comparison.as_text(before, after, compared)
    assert "worse: scripted-qwen3 tests/behaviours/test_a.py::t: passed -> finding (it `is` wrong)" in text
    assert "known (vllm-1) -> passed" in comparison.as_markdown(before, after, compared)
    data = json.loads(comparison.as_json(before, after, compared))
    assert data["counts"] == {"worse": 1, "better": 1, "same": 1}
    assert [each["change"] for each in data["changed"]] == ["worse", "better"]
