"""What the README shows exists and works."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
import typer

from vllm_harness.cli.main import app
from vllm_harness.environments.spec import parse
from vllm_harness.scripted.book_file import load_book

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text()
COMMANDS = sorted(set(re.findall(r"^\$ (vllm-harness [^#\n]*|pytest [^#\n]*|scripts/\w+)", TEXT, re.M)))


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command: str, pytestconfig: pytest.Config) -> None:
    words = shlex.split(command)
    if words[0].startswith("scripts/"):
        assert (README.parent / words[0]).exists()
        return
    options = [word.split("=")[0] for word in words if word.startswith("--") and word != "--"]
    if words[0] == "pytest":
        assert all(option.lstrip("-").replace("-", "_") in vars(pytestconfig.option) for option in options)
        return
    known = typer.main.get_command(app).commands[words[1]]  # type: ignore[attr-defined]
    if words[2:] and words[2] in getattr(known, "commands", {}):
        known = known.commands[words[2]]
    assert set(options) <= {name for parameter in known.params for name in parameter.opts}


def test_every_command_is_in_the_table() -> None:
    named = {
        word
        for row in re.findall(r"^\| `vllm-harness (.*?)\|", TEXT, re.M)
        for word in re.findall(r"[\w-]+", row)
    }
    assert set(typer.main.get_command(app).commands) <= named  # type: ignore[attr-defined]


@pytest.mark.parametrize("block", blocks("python"))
def test_python_compiles(block: str) -> None:
    ast.parse(block)


@pytest.mark.parametrize("block", blocks("yaml"))
def test_books_load(block: str, tmp_path: Path) -> None:
    book = tmp_path / "book.yaml"
    book.write_text(block)
    assert load_book(book)


@pytest.mark.parametrize(
    "spec", ["installed", "installed:/path/to/python", "0.32.0", "0.33.0@0.32.0", "tree:/path/to/vllm@0.32.0"]
)
def test_specs_parse(spec: str) -> None:
    assert spec.split("/path")[0] in TEXT
    parse(spec)
