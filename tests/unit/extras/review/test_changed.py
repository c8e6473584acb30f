"""The families and APIs that a change to vLLM's files can affect, tested on small packages."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner

from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness._scripted.families import load_families
from vllm_harness.cli.main import app
from vllm_harness.extras.review.change import changed_files
from vllm_harness.extras.review.imports import Import, Package
from vllm_harness.extras.review.touched import APIS, touched_apis, touched_families
from vllm_harness.extras.review.unchanged import unchanged

FILES = {
    "tool_parsers/__init__.py": """
        from vllm.tool_parsers.base import ToolParserManager
        _TOOL_PARSERS_TO_REGISTER = {"one": ("one_parser", "One"), "two": ("two_parser", "Two")}
        """,
    "tool_parsers/base.py": "class ToolParserManager: ...",
    "tool_parsers/one_parser.py": """
        from typing import TYPE_CHECKING
        from vllm.parser.adapters import OneAdapter
        if TYPE_CHECKING:
            from vllm.parser import typed
        class One(OneAdapter): ...
        """,
    "tool_parsers/two_parser.py": """
        from .base import ToolParserManager
        from vllm.parser.adapters import TwoAdapter
        class Two:
            def parse(self):
                from vllm.outside import tell
        """,
    "reasoning/__init__.py": '_REASONING_PARSERS_TO_REGISTER = {"slow": ("slow", "Slow")}',
    "reasoning/slow.py": "class Slow: ...",
    "parser/__init__.py": "from vllm.parser.abstract_parser import Parser",
    "parser/abstract_parser.py": "class Parser: ...\nclass DelegatingParser: ...",
    "parser/adapters.py": """
        from vllm.parser.make import make
        from vllm.parser.one import OneParser
        from vllm.parser.two import TwoParser
        OneAdapter, _ = make(OneParser)
        TwoAdapter, _ = make(TwoParser)
        """,
    "parser/make.py": "def make(parser): ...",
    "parser/one.py": "class OneParser: ...",
    "parser/two.py": "class TwoParser: ...",
    "parser/typed.py": "",
    "parser/whole.py": "class Whole: ...",
    "parser/parser_manager.py": """
        SLOW = "slow"
        class ParserManager:
            def compose(self, name):
                if name == SLOW:
                    from vllm.parser.whole import Whole
        """,
    "outside.py": "from vllm.beyond import more\ndef tell(): ...",
    "beyond.py": "",
}
HERMES = load_families()["hermes"]
ONE, TWO = (replace(HERMES, name=name, tool_parser=name) for name in ("one", "two"))
SLOW = replace(HERMES, name="slow", tool_parser=None, reasoning_parser="slow")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return written(tmp_path / "tree" / "vllm")


def written(folder: Path, files: dict[str, str] = FILES) -> Path:
    for name, text in {"__init__.py": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))
    return folder


def environment(tree: Path) -> Environment:
    python = tree / "environment" / "bin" / "python"
    return Environment("tree", python, "3.11", "0.32.0", "cpu", None, kernels="0.32.0", tree=tree)


def test_changed_files_are_found_by_content(package: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other")
    assert changed_files(package, other) == ()
    (other / "outside.py").write_text("changed = True")
    (other / "beyond.py").unlink()
    (other / "_version.py").write_text("")
    (other / "parser" / "new.py").write_text("")
    (other / "parser" / "notes.md").write_text("")
    assert changed_files(package, other) == ("beyond.py", "outside.py", "parser/new.py")


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("tool_parsers/one_parser.py", ["one"]),
        ("parser/one.py", ["one"]),
        ("parser/two.py", ["two"]),
        ("parser/make.py", ["one", "two"]),
        ("parser/typed.py", []),
        ("outside.py", ["two"]),
        ("beyond.py", []),
        ("reasoning/slow.py", ["slow"]),
        ("parser/whole.py", ["slow"]),
        ("parser/abstract_parser.py", ["one", "two", "slow"]),
        ("parser/parser_manager.py", ["one", "two", "slow"]),
        ("tool_parsers/__init__.py", ["one", "two", "slow"]),
    ],
)
def test_a_file_affects_the_families_that_import_it(package: Path, changed: str, touched: list[str]) -> None:
    families = touched_families(package, (ONE, TWO, SLOW), {changed})
    assert [family.name for family in families] == touched


def test_a_removed_file_affects_the_families_that_import_it(package: Path) -> None:
    (package / "parser" / "one.py").unlink()
    assert [family.name for family in touched_families(package, (ONE, TWO), {"parser/one.py"})] == ["one"]


API_FILES = {
    "entrypoints/openai/responses/__init__.py": "",
    "entrypoints/openai/responses/serving.py": "from vllm.entrypoints.openai.responses import events",
    "entrypoints/openai/responses/events.py": "",
    "entrypoints/openai/responses/protocol.py": "class Request: ...",
    "entrypoints/openai/chat_completion/serving.py": "class Serving: ...",
    "entrypoints/anthropic/serving.py": """
        from vllm.entrypoints.openai.chat_completion.serving import Serving
        """,
    "entrypoints/generate/api_router.py": "from vllm.entrypoints.openai.responses.serving import Serving",
    "renderers/renderer.py": "from vllm.entrypoints.openai.responses.protocol import Request",
}


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("responses/events.py", ["Responses"]),
        ("responses/serving.py", ["Responses"]),
        ("chat_completion/serving.py", ["Chat Completions", "Messages"]),
        ("responses/protocol.py", ["Responses", "Chat Completions", "Messages"]),
    ],
)
def test_a_file_affects_the_apis_that_import_it(package: Path, changed: str, touched: list[str]) -> None:
    written(package, API_FILES)
    apis = touched_apis(package, [f"entrypoints/openai/{changed}"])
    assert [api.name for api in apis] == touched


def test_a_file_outside_the_apis_affects_all(package: Path) -> None:
    written(package, API_FILES)
    assert [api.name for api in touched_apis(package, ["entrypoints/anthropic/serving.py"])] == ["Messages"]
    for file in ("parser/one.py", "renderers/renderer.py", "gone.py"):
        assert touched_apis(package, ["entrypoints/anthropic/serving.py", file]) == APIS


def test_a_file_with_a_syntax_error_is_reached(package: Path) -> None:
    (package / "parser" / "one.py").write_text("def (")
    reached = Package(package).reached([Import("vllm.parser.one", "OneParser")])
    assert reached == {"parser/__init__.py", "parser/one.py"}


def git(tree: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    subprocess.run(["git", "-C", tree, *identity, *arguments], check=True, capture_output=True)


def test_a_checkout_is_compared_with_a_revision(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(tmp_path / "state"))
    tree = package.parent
    git(tree, "init", "--quiet")
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "-m", "first")
    (package / "outside.py").write_text("")
    before = unchanged(environment(tree), "", print)
    assert changed_files(before.package, package) == ("outside.py",)
    git(tree, "commit", "--quiet", "-a", "-m", "second")
    assert changed_files(unchanged(environment(tree), "", print).package, package) == ()
    first = unchanged(environment(tree), "HEAD~1", print)
    assert changed_files(first.package, package) == ("outside.py",)
    assert first.spec.endswith("@0.32.0")
    with pytest.raises(UsageError, match="no revision nowhere"):
        unchanged(environment(tree), "nowhere", print)


def test_a_tree_without_git_has_no_revisions(package: Path) -> None:
    with pytest.raises(UsageError, match="is not a git checkout"):
        unchanged(environment(package.parent), "HEAD", print)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--changed", "--vllm", "0.32.0"], "needs a working tree"),
        (["--changed", "--run", "mine"], "cannot be combined with --run"),
        (["--changed", "--engine", "http"], "cannot be combined with --engine http"),
        (["--changed-from", "HEAD"], "--changed-from needs --changed"),
    ],
)
def test_conflicting_options_are_rejected(arguments: list[str], words: str) -> None:
    answer = CliRunner().invoke(app, ["regression", *arguments])
    assert isinstance(answer.exception, UsageError)
    assert words in answer.exception.message
