"""Tests the report of `vllm-harness doctor`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vllm_harness._environments import store
from vllm_harness._environments.installer import InstallError
from vllm_harness._errors import UsageError
from vllm_harness.cli import doctor_checks as doctor
from vllm_harness.cli.main import app

RUNNER = CliRunner()


def test_missing_items_have_a_remedy() -> None:
    report = doctor.examine()
    assert {"python", "processor", "memory", "uv", "npm", "model hub", "disk"} <= {
        c.topic for c in report.checks
    }
    assert all(check.remedy for check in report.checks if check.state == "missing")
    assert any(check.remedy == "vllm-harness env assets fetch smollm2-135m" for check in report.checks)
    assert any(check.remedy.startswith("vllm-harness env create") for check in report.checks)


def test_the_environment_of_a_removed_tree_is_missing(tmp_path: Path) -> None:
    tree = tmp_path / "vllm-0.33.0"
    (tree / "vllm").mkdir(parents=True)
    folder = store.environments_folder() / "tree-1"
    folder.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("version_info = 3.11.7")
    store.write_marker(folder, store.Marker("0.33.0", "cpu", "2.13.0", "tree", "0.32.0", tree=str(tree)))

    def checks() -> list[tuple[str, str]]:
        return [
            (check.state, check.remedy)
            for check in doctor.examine().checks
            if "tree" in check.found and check.topic == "vLLM"
        ]

    assert checks() == [("ok", "")]
    shutil.rmtree(tree)
    assert checks() == [("missing", "vllm-harness env remove tree-1")]
    assert "its tree is gone" in RUNNER.invoke(app, ["env", "list"]).stdout


def test_the_report_as_json() -> None:
    answer = RUNNER.invoke(app, ["doctor", "--json"])
    assert answer.exit_code == 0
    assert json.loads(answer.stdout)["can_run"] == doctor.examine().can_run


def test_the_report_as_text() -> None:
    answer = RUNNER.invoke(app, ["doctor"])
    assert answer.exit_code == 0
    assert "can run scripted lane" in answer.stdout


def test_nothing_can_run_without_vllm_and_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise InstallError("uv was not found", hint="pip install uv")

    monkeypatch.setattr(doctor, "uv_path", missing)
    answer = RUNNER.invoke(app, ["doctor"])
    assert answer.exit_code == 1
    assert "pip install uv" in answer.stdout


def test_a_machine_with_too_little_memory_for_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RUNNER.invoke(app, ["doctor", "--servers", "0"]).exit_code == 0
    monkeypatch.setenv("VLLM_HARNESS_MEMORY_GIB", "1.5")
    with pytest.raises(UsageError, match=r"cannot run 2 CPU servers at once: memory: .* bound to 1.5 GiB"):
        RUNNER.invoke(app, ["doctor", "--servers", "2"], catch_exceptions=False)
