"""Reviews of changes in a git repository with a copy of vLLM's Python code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.unit.extras.review.action_steps import Runner, steps
from tests.unit.extras.review.trees import commit, git, tree_of, write
from vllm_harness._environments import resolve
from vllm_harness._files.paths import cache_dir
from vllm_harness.cli.main import app

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(1800), pytest.mark.extra("review")]

VLLM = "0.32.0"
PARSER = "vllm/tool_parsers/hermes_tool_parser.py"
Review = Callable[..., tuple[Result, dict[str, Any]]]


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """A git repository with a copy of vLLM's Python code, at a fixed path: its environment is made once."""
    folder = cache_dir() / "review-tests" / f"vllm-{VLLM}"
    package = resolve(VLLM, create=True).package
    assert package is not None
    if not (folder / ".git").is_dir():
        names = [path.relative_to(package) for path in package.rglob("*.py")]
        files = {f"vllm/{name}": (package / name).read_text() for name in names}
        folder.mkdir(parents=True)
        write(folder, {**files, "docs/index.md": "# vLLM"})
        git(folder, "init", "-q", "-b", "main")
        commit(folder, {})
    git(folder, "checkout", "-q", "--", ".")
    yield folder
    git(folder, "checkout", "-q", "--", ".")


@pytest.fixture
def review(tree: Path, tmp_path: Path) -> Review:
    """Replaces one text in the parser, and reviews the change; returns the result and the JSON."""

    def reviewed(old: str, new: str, *options: str) -> tuple[Result, dict[str, Any]]:
        git(tree, "checkout", "-q", "--", ".")
        text = (tree / PARSER).read_text()
        assert text.count(old) == 1
        (tree / PARSER).write_text(text.replace(old, new))
        arguments = ["--head", f"tree:{tree}@{VLLM}", "--output", str(tmp_path / "out"), *options]
        result = CliRunner().invoke(app, ["review", *arguments])
        return result, json.loads((tmp_path / "out" / "review.json").read_text())

    return reviewed


def test_a_boundary_fault_that_only_chunks_show_is_red(review: Review) -> None:
    result, found = review("if overlap:", "if overlap > 1:", "--parts", "in-process", "--exit-first")
    assert result.exit_code == 1, result.output
    assert found["verdict"] == "regressed"
    (cause,) = found["causes"]
    assert cause["files"] == ["tool_parsers/hermes_tool_parser.py"]
    example = cause["kinds"][0]["example"]
    assert example["mismatch"] == "arguments_not_json"
    assert example["parting"]["where"] == "call 0: arguments"
    assert example["parting"]["expected"] == ""
    wrong = example["steps"][example["parting"]["chunk"] - 1]
    assert wrong["text"].endswith("<"), "the chunk ends within the marker that the parser must hold back"
    assert "<" in wrong["calls"][-1]["arguments"]
    assert example["command"] in result.output


def test_a_good_refactoring_is_green(review: Review) -> None:
    result, found = review("if overlap:", "if overlap > 0:", "--parts", "in-process")
    assert result.exit_code == 0, result.output
    assert found["verdict"] == "unchanged"
    (part,) = found["parts"]
    assert part["judged"] > 1000
    assert (part["regressed"], part["flaky"]) == (0, [])


def test_a_server_shows_a_broken_parser(review: Review) -> None:
    old, new = "content=content if content else None", "content=None"
    result, found = review(old, new, "--parts", "http", "--parsers", "hermes_special")
    assert result.exit_code == 1, result.output
    (part,) = found["parts"]
    assert part["name"] == "parsers over HTTP"
    assert "--engine http" in found["causes"][0]["kinds"][0]["example"]["command"]


def test_an_unreachable_index_is_a_machine_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tree_of(tmp_path / "vllm-src")
    write(tree, {"vllm/tool_parsers/hermes_tool_parser.py": "class Hermes2ProToolParser: ..."})
    parsers = '_TOOL_PARSERS_TO_REGISTER = {"hermes": ("hermes_tool_parser", "Hermes2ProToolParser")}'
    write(tree, {"vllm/tool_parsers/__init__.py": parsers})
    for name in ("VLLM_HARNESS_CACHE", "UV_CACHE_DIR"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    arguments = ["--head", f"tree:{tree}@{VLLM}", "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["review", *arguments])
    assert result.exit_code == 3, result.output
    assert "verdict: could not be judged" in result.output


def test_the_action_reviews_a_change(tree: Path, tmp_path: Path) -> None:
    """Installs this checkout in an empty home folder; runs each step of the action that needs no GitHub."""
    root = Path(__file__).parents[3]
    inputs = {"harness": f"{root}[review]", "kernels": VLLM, "base": "HEAD", "path": "."}
    runner = Runner(tmp_path / "runner", inputs, {"VLLM_HARNESS_CACHE": str(cache_dir())})
    installed = runner.run(steps()["Install the harness"], tree)
    assert installed.code == 0, installed.text
    git(tree, "checkout", "-q", "--", ".")
    write(tree, {"docs/index.md": "# New"})
    result = runner.run(steps()["Review the change"], tree)
    assert result.code == 0, result.text
    assert result.outputs["verdict"] == "nothing to judge"


def test_the_step_fails_with_the_exit_code_of_the_command(tree: Path, tmp_path: Path) -> None:
    runner = Runner(tmp_path / "runner", {"base": "nonsense"}, {})
    bin_folder = runner.temporary / "vllm-harness" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "vllm-harness").symlink_to(Path(sys.executable).with_name("vllm-harness"))
    result = runner.run(steps()["Review the change"], tree)
    assert result.code == 2
    assert "has no revision nonsense" in result.text
    assert "verdict" not in result.outputs
