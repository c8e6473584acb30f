"""What runs of upstream's tests measured: from results, as the package keeps it, and as a page has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness.defects.registry import load_defects
from vllm_harness.errors import UsageError
from vllm_harness.upstream.measured import IMAGES, MeasuredRun, as_markdown, measured, read, write
from vllm_harness.upstream.results import TestResult, UpstreamResults

ABOUT = {"tests": "0.33.0", "short": "0.33.0@0.32.0", "seconds": 120.0, "machine": "2 cores"}


@pytest.fixture
def run(tmp_path: Path) -> MeasuredRun:
    """What a run measured that has a test of each kind."""
    results = UpstreamResults(about=ABOUT)
    results.tests["tests/a/test_a.py"] = {
        "test_right": TestResult("passed", wrong={"rule": "other"}),
        "test_empty": TestResult("passed", retries=2, retried_for="a-defect", wrong={"rule": None}),
        "test_wrong": TestResult("failed", "assert <a>"),
        "test_known": TestResult("defect", "a-defect"),
        "test_gpu": TestResult("skipped", "needs a GPU"),
        "test_image": TestResult("skipped", f"{IMAGES}, which is large"),
        "test_unit": TestResult("passed", server=False),
    }
    results.tests["tests/a/test_unit.py"] = {"test_broken": TestResult("failed", "why", server=False)}
    results.write(tmp_path)
    return measured(tmp_path)


def test_a_run_is_counted_by_file(run: MeasuredRun) -> None:
    assert run.files["a/test_a.py"].model_dump() == {
        "tests": 6,
        "passed": 2,
        "failed": 1,
        "skipped": 2,
        "defects": 1,
        "retries": 2,
        "unit_tests": 1,
        "unit_passed": 1,
    }
    assert run.total.unit_tests == 2
    assert run.share == 2 / 5
    assert run.wrong
    assert run.wrong.passed == ("a/test_a.py::test_empty",)
    assert run.failures == {"a/test_a.py::test_wrong": "assert <a>", "a/test_unit.py::test_broken": "why"}
    assert run.defects == {"a-defect": ["a/test_a.py::test_known"]}
    assert run.retried == {"a-defect": 1}


def test_the_page_names_each_reason_and_no_html_comes_from_it(run: MeasuredRun) -> None:
    page = as_markdown(run)
    assert "2 of 5 tests that start a server for a text model ran and passed (40%), and 1 of 2" in page
    assert "| a/test_a.py | 6 | 2 | 1 | 2 | 1 | 2 | 1 of 1 |" in page
    assert "- 1: needs a GPU" in page
    assert "- `a/test_a.py::test_wrong`: assert &lt;a>" in page
    assert "With a wrong answer 1 of 2 tests that passed failed (50%)." in page


def test_the_file_gives_back_what_was_written(run: MeasuredRun, tmp_path: Path) -> None:
    write([run], tmp_path / "measured.yaml")
    assert read(tmp_path / "measured.yaml") == [run]


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no upstream\.json"):
        measured(tmp_path)


def test_what_the_package_has_measured_is_enough_and_names_known_defects() -> None:
    newest, *_ = runs = read()
    assert newest.tests == "0.33.0"
    assert newest.share >= 0.85
    assert newest.wrong
    assert newest.wrong.tried == newest.wrong.failed + len(newest.wrong.passed)
    for run in runs:
        assert {*run.defects, *run.retried} <= load_defects().keys()
        assert all(run.skipped)
