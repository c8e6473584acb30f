"""The code blocks in README and manual are valid: commands parse, files load, imports and links exist."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
import typer
import yaml

from tests.docs import commands
from tests.docs.blocks import BLOCKS, PAGES, ROOT, Block, blocks_of, written_in
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._defects.entry import Defect
from vllm_harness._environments.spec import parse
from vllm_harness._scenarios.reading import read_scenario
from vllm_harness._scripted.book_check import check_book
from vllm_harness.cli.main import app
from vllm_harness.extras.mutants.mutant import load_by_hand
from vllm_harness.extras.review.accepted import read_accepted
from vllm_harness.extras.upstream.books import UpstreamBook

LANGUAGES = {"python", "console", "yaml", "text", "http"}
COMMANDS = [
    pytest.param(line, id=f"{block}: {line.split('  #')[0].rstrip()}")
    for block in written_in("console")
    for line in block.commands()
]
LINKS = [
    pytest.param(page, link, id=f"{page.relative_to(ROOT)}: {link}")
    for page in PAGES
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_names_a_language_that_is_checked(block: Block) -> None:
    assert block.language in LANGUAGES


@pytest.mark.parametrize("line", COMMANDS)
def test_command_is_one_of_today(line: str) -> None:
    commands.check(line)


@pytest.mark.parametrize("block", written_in("console"), ids=str)
def test_console_block_has_a_command(block: Block) -> None:
    assert list(block.commands())


@pytest.mark.parametrize("block", written_in("text"), ids=str)
def test_output_follows_what_prints_it(block: Block) -> None:
    assert block.follows is not None
    assert block.follows.language in {"console", "python"}


@pytest.mark.parametrize("block", written_in("python"), ids=str)
def test_python_imports_what_there_is(block: Block) -> None:
    for node in ast.walk(block.tree()):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert not missing, f"{node.module} has no {', '.join(missing)}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)


@pytest.mark.parametrize("block", written_in("yaml"), ids=str)
def test_yaml_loads_as_what_it_is(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "block.yaml"
    file.write_text(block.text)
    match yaml.safe_load(block.text):
        case {"rules": _}:
            assert check_book(file).usable()
        case {"scenario": _}:
            assert read_scenario(file)
        case {"id": _, "class": _} as entry:
            assert Defect.model_validate(entry)
        case {"models": _}:
            assert load_models(file)
        case {"accepted": _}:
            assert read_accepted(file)
        case {"mutants": _}:
            assert load_by_hand(file.parent)
        case {"file": _, "tests": _} as book:
            assert UpstreamBook.model_validate(book).tests
        case {"steps": steps}:
            for step in steps:
                commands.check(step["run"])
        case other:
            pytest.fail(f"no model loads a file with {list(other)}")


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_link_leads_to_a_file(page: Path, link: str) -> None:
    generated = (ROOT / "docs" / "reference").resolve()
    target = (page.parent / link).resolve()
    assert target.exists() or generated in target.parents


def specs() -> list[str]:
    """The environment specs in the table in docs/how-to/choose-vllm.md."""
    (table,) = re.findall(r"^\| spec .*?\n\n", (ROOT / "docs/how-to/choose-vllm.md").read_text(), re.M | re.S)
    return [
        spec for row in table.strip().splitlines()[2:] for spec in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]


@pytest.mark.parametrize("spec", specs())
def test_spec_parses(spec: str) -> None:
    parse(spec)


def test_every_command_is_in_the_manual() -> None:
    shown = {
        line.split()[1]
        for block in written_in("console")
        for line in block.commands()
        if line.startswith("vllm-harness ")
    }
    missing = set(typer.main.get_command(app).commands) - shown  # type: ignore[attr-defined]
    assert not missing


def test_ci_runs_the_test_command_of_the_readme() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    readme = [line for block in blocks_of(ROOT / "README.md") for line in block.commands()]
    assert ci.splitlines()[-1] == "exec scripts/test"
    assert any(line.split()[0] == "scripts/test" for line in readme)
