"""The results of upstream's tests: from runs, in the package's file, and as a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._defects.registry import load_defects
from vllm_harness._errors import UsageError
from vllm_harness.extras.upstream.measured import (
    IMAGES,
    MeasuredUpstreamRun,
    as_markdown,
    measured,
    read,
    write,
)
from vllm_harness.extras.upstream.results import TestResult, UpstreamResults

ABOUT = {"tests": "0.33.0", "short": "0.33.0@0.32.0", "seconds": 120.0, "machine": "2 cores"}


@pytest.fixture
def run(tmp_path: Path) -> MeasuredUpstreamRun:
    """The results of a run that has a test with each outcome."""
    results = UpstreamResults(about=ABOUT)
    results.tests["tests/a/test_a.py"] = {
        "test_right": TestResult("passed", wrong={"rule": "other"}),
        "test_empty": TestResult("passed", retries=2, retried_for="a-defect", wrong={"rule": None}),
        "test_form": TestResult("passed", wrong={"rule": None}, any_answer="it asserts <nothing>"),
        "test_wrong": TestResult("failed", "assert <a>"),
        "test_known": TestResult("defect", "a-defect"),
        "test_gpu": TestResult("skipped", "needs a GPU"),
        "test_image": TestResult("skipped", f"{IMAGES}, which is large"),
        "test_unit": TestResult("passed", server=False),
    }
    results.tests["tests/a/test_unit.py"] = {
        "test_broken": TestResult("failed", "no 'x' in 'vllm' (/home/me/vllm/x.py)", server=False)
    }
    results.write(tmp_path)
    (only,) = measured([tmp_path])
    return only


def test_a_run_is_counted_by_file(run: MeasuredUpstreamRun) -> None:
    assert run.files["a/test_a.py"].model_dump() == {
        "tests": 7,
        "passed": 3,
        "failed": 1,
        "skipped": 2,
        "defects": 1,
        "retries": 2,
        "unit_tests": 1,
        "unit_passed": 1,
    }
    assert run.total.unit_tests == 2
    assert run.share == 3 / 6
    assert run.wrong
    assert (run.wrong.tried, run.wrong.failed, run.wrong.looking) == (3, 1, 2)
    assert run.wrong.any_answer == {"a/test_a.py::test_form": "it asserts <nothing>"}
    assert run.wrong.passed == ("a/test_a.py::test_empty",)
    assert run.failures == {
        "a/test_a.py::test_wrong": "assert <a>",
        "a/test_unit.py::test_broken": "no 'x' in 'vllm'",
    }
    assert run.defects == {"a-defect": ["a/test_a.py::test_known"]}
    assert run.retried == {"a-defect": 1}


def test_the_page_names_each_reason_and_escapes_html(run: MeasuredUpstreamRun) -> None:
    page = as_markdown(run)
    assert "3 of 6 tests that start a server for a text model ran and passed (50%), and 1 of 2" in page
    assert "| a/test_a.py | 7 | 3 | 1 | 2 | 1 | 2 | 1 of 1 |" in page
    assert "- 1: needs a GPU" in page
    assert "- `a/test_a.py::test_wrong`: assert &lt;a>" in page
    assert "With a wrong answer 1 of 3 tests that passed failed (33%)" in page
    assert "those that check the content, 1 of 2 (50%)." in page
    assert (
        "These check only the form of an answer:\n\n- `a/test_a.py::test_form`: it asserts &lt;nothing>"
        in page
    )
    assert "These pass with any answer:\n\n- `a/test_a.py::test_empty`" in page


def test_runs_of_the_same_tests_and_version_are_combined(tmp_path: Path) -> None:
    runs = [
        ("0.33.0", "test_a.py", "passed"),
        ("0.32.0", "test_a.py", "passed"),
        ("0.33.0", "test_b.py", "failed"),
    ]
    folders = [tmp_path / str(number) for number in range(len(runs) + 1)]
    for folder, (tests, file, outcome) in zip(
        folders, [*runs, ("0.33.0", "test_a.py", "failed")], strict=True
    ):
        folder.mkdir()
        results = UpstreamResults(about={**ABOUT, "tests": tests})
        results.tests[f"tests/{file}"] = {"test_one": TestResult(outcome, "why")}
        results.write(folder)
    newer, older = measured(folders)
    assert (newer.tests, older.tests) == ("0.33.0", "0.32.0")
    assert (newer.seconds, older.seconds) == (360.0, 120.0)
    assert newer.failures == {"test_a.py::test_one": "why", "test_b.py::test_one": "why"}
    assert older.failures == {}


def test_a_run_with_wrong_answers_adds_to_a_plain_one(run: MeasuredUpstreamRun, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    results = UpstreamResults(about={**ABOUT, "seconds": 60.0})
    unit, served = TestResult("passed", server=False), TestResult("passed")
    results.tests["tests/a/test_a.py"] = {"test_right": served, "test_other_unit": unit}
    results.write(plain)
    (both,) = measured([plain, tmp_path])
    assert both.files["a/test_a.py"].unit_tests == 2
    assert both.wrong == run.wrong
    assert (both.seconds, both.wrong and both.wrong.seconds) == (60.0, 120.0)
    assert "1 minutes, and 2 minutes with wrong answers too on 2 cores." in as_markdown(both)


def test_the_written_file_is_read_back(run: MeasuredUpstreamRun, tmp_path: Path) -> None:
    write([run], tmp_path / "measured.yaml")
    assert read(tmp_path / "measured.yaml") == [run]


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no upstream\.json"):
        measured([tmp_path])


def test_the_results_in_the_package_pass_enough_tests_and_name_known_defects() -> None:
    newest, *_ = runs = read()
    assert newest.tests == "0.33.0"
    assert newest.share >= 0.85
    assert newest.wrong
    assert newest.wrong.looking == newest.wrong.failed + len(newest.wrong.passed)
    for run in runs:
        assert {*run.defects, *run.retried} <= load_defects().keys()
        assert all(run.skipped)
