"""Compared with the committed baseline, a run of every family passes, and one with a broken parser fails."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vllm_harness._environments import resolve
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._regression.cases.groups import case_set
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.engines.plan import plan_cases
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness._regression.results.compare import against, read_baseline
from vllm_harness._regression.run import run_batches, unfinished
from vllm_harness._scripted.families import load_families
from vllm_harness._server.model_check import names_of
from vllm_harness.cli.main import app

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(600)]

VLLM = "0.32.0"
ROOT = Path(__file__).parents[2]
BASELINE = ROOT / "ci" / f"regression-{VLLM}.yaml"
PLUGIN = Path(__file__).with_name("broken_hermes.py")


def test_the_release_of_the_baseline_passes(tmp_path: Path) -> None:
    arguments = ["--cases", "canonical", "--vllm", VLLM, "--run", str(tmp_path / "run")]
    result = CliRunner().invoke(app, ["regression", *arguments, "--baseline", str(BASELINE)])
    assert result.exit_code == 0, result.stdout
    assert "0 regressed, 0 fixed" in result.stdout
    assert "not compared" not in result.stdout


def test_a_broken_parser_fails(tmp_path: Path) -> None:
    plugin = ("--tool-parser-plugin", str(PLUGIN))
    broken = replace(load_families()["hermes"], tool_parser="broken_loses_second_call", args=plugin)
    run = RegressionRun(tmp_path)
    cases = plan_cases(case_set("canonical", broken, load_meanings()), "in-process")
    batches = unfinished(run, [VllmUnderTest(VLLM, resolve(VLLM))], [cases])
    assert run_batches(run, batches, parallel=1, done=lambda _: None) == []
    changed = against(read_baseline(BASELINE), run.cells())
    assert {change.case for change in changed if change.regressed} >= {"two calls", "three calls"}


def test_interpreters_leave_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    environment = resolve(VLLM)
    names_of(environment)
    cases = plan_cases(case_set("canonical", load_families()["hermes"], load_meanings()), "in-process")
    batches = unfinished(RegressionRun(tmp_path / "run"), [VllmUnderTest(VLLM, environment)], [cases])
    assert run_batches(RegressionRun(tmp_path / "run"), batches, parallel=1, done=lambda _: None) == []
    assert not list(temporary.iterdir())
