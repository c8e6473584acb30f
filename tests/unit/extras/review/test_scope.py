"""What a change can affect, and changes for which there is nothing to judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.extras.review.trees import commit, git, tree_of, write
from vllm_harness._scripted.families import load_families
from vllm_harness.cli.main import app
from vllm_harness.extras.review.scope import git_difference, scope_of

HERMES = load_families()["hermes"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return tree_of(tmp_path / "vllm-src")


def test_changes_that_are_not_committed_count(tree: Path) -> None:
    write(tree, {"vllm/tool_parsers/hermes.py": "", "vllm/new.py": "", "csrc/a.cu": "", "docs/index.md": ""})
    git(tree, "add", "csrc")
    found = git_difference(f"tree:{tree}@0.32.0", "")
    assert found
    assert found.code == ("new.py", "tool_parsers/hermes.py")
    assert found.others == ("csrc/a.cu", "docs/index.md")
    assert [each.what for each in found.not_run] == ["csrc/a.cu"]


def test_a_branch_is_compared_with_where_it_left_the_base(tree: Path) -> None:
    git(tree, "checkout", "-q", "-b", "work")
    commit(tree, {"docs/index.md": "# New"})
    git(tree, "checkout", "-q", "main")
    commit(tree, {"vllm/engine.py": "later = 1"})
    git(tree, "checkout", "-q", "work")
    found = git_difference(f"tree:{tree}", "main")
    assert found
    assert (found.code, found.others) == ((), ("docs/index.md",))


def test_a_release_is_no_revision(tree: Path) -> None:
    assert git_difference(f"tree:{tree}", "0.31.0") is None


@pytest.mark.parametrize(
    ("file", "families", "apis", "not_run"),
    [
        ("tool_parsers/hermes.py", ["hermes"], [], 0),
        ("renderers/hf.py", [], ["Responses", "Chat Completions", "Messages"], 0),
        ("transformers_utils/chat_templates/a.jinja", [], ["Responses", "Chat Completions", "Messages"], 0),
        ("engine.py", [], [], 1),
    ],
)
def test_what_a_file_can_affect(
    tree: Path, file: str, families: list[str], apis: list[str], not_run: int
) -> None:
    scope = scope_of(tree / "vllm", [HERMES], [file])
    assert [family.name for family in scope.families] == families
    assert [api.name for api in scope.apis] == apis
    assert len(scope.not_run) == not_run


@pytest.mark.parametrize("file", ["docs/index.md", "vllm/engine.py"])
def test_there_is_nothing_to_judge(tree: Path, tmp_path: Path, file: str) -> None:
    write(tree, {file: "# New"})
    arguments = ["--head", f"tree:{tree}@0.32.0", "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["review", *arguments])
    assert result.exit_code == 0
    assert result.output.splitlines()[-1].startswith("verdict: nothing to judge")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parts", "none"], "unknown part 'none'"),
        (["--accept", "missing.yaml"], "missing.yaml"),
        (["--base", "nonsense"], "has no revision nonsense"),
    ],
)
def test_wrong_use_is_refused(tree: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    write(tree, {"vllm/engine.py": "# New"})
    place = ["--head", f"tree:{tree}@0.32.0", "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["review", *place, *arguments])
    assert getattr(result.exception, "exit_code", None) == 2
    assert message in str(result.exception)
