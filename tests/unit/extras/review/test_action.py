"""The GitHub action: its steps run from its YAML, on a change that needs no environment to be judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.unit.extras.review.action_steps import ACTION, Runner, steps
from tests.unit.extras.review.trees import commit, tree_of
from vllm_harness.cli.main import app
from vllm_harness.extras.review.workflow import ACTION as COPIED
from vllm_harness.extras.review.workflow import WORKFLOW


@pytest.mark.parametrize("name", steps())
def test_a_step_is_a_valid_script(name: str) -> None:
    script = steps()[name]["run"]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "${{" not in script, "an expression in a script would let a pull request inject commands"


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    runner = Runner(tmp_path / "runner", {"base": "HEAD~1"}, {})
    bin_folder = runner.temporary / "vllm-harness" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "vllm-harness").symlink_to(Path(sys.executable).with_name("vllm-harness"))
    return runner


def test_the_step_reviews_a_change_to_the_documentation(runner: Runner, tmp_path: Path) -> None:
    tree = tree_of(tmp_path / "vllm-src")
    commit(tree, {"docs/index.md": "# New"})
    result = runner.run(steps()["Review the change"], tree)
    assert result.code == 0, result.text
    assert result.outputs["verdict"] == "nothing to judge"
    assert "::notice::verdict: nothing to judge" in result.text
    assert "nothing to judge" in runner.summary.read_text()
    folder = Path(result.outputs["folder"])
    assert json.loads((folder / "review.json").read_text())["exit_code"] == 0
    assert {"comment.md", "junit.xml", "annotations.txt"} <= {path.name for path in folder.iterdir()}


def test_init_writes_the_action_into_a_checkout_of_vllm(tmp_path: Path) -> None:
    tree = tree_of(tmp_path / "vllm-src")
    result = CliRunner().invoke(app, ["init", str(tree), "--ci", "github"])
    assert result.exit_code == 0, result.output
    assert (tree / COPIED).read_text() == ACTION.read_text()
    workflow = yaml.safe_load((tree / WORKFLOW).read_text())
    assert {"uses": f"./{Path(COPIED).parent}"}.items() <= next(
        step for step in workflow["jobs"]["review"]["steps"] if step.get("id") == "review"
    ).items()
    assert not (tree / "models.yaml").exists()
    again = CliRunner().invoke(app, ["init", str(tree), "--ci", "github"])
    assert again.output.count("it exists already") == 2


def test_init_writes_a_workflow_that_runs_the_first_test(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["init", str(tmp_path), "--ci", "github"])
    assert result.exit_code == 0, result.output
    workflow = yaml.safe_load((tmp_path / WORKFLOW).read_text())
    command = workflow["jobs"]["tests"]["steps"][-1]["run"]
    assert f"$ {command}" in result.output
