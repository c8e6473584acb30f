"""The first output of the command line, and the help texts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.docs.commands import check_harness
from vllm_harness._environments.locks import locks
from vllm_harness.cli import welcome
from vllm_harness.cli.main import app

ROOT = typer.main.get_command(app)
LINE = 80


def commands(command: Any = ROOT, name: str = "vllm-harness") -> Iterator[tuple[str, Any]]:
    """Every command and command group, with its full name."""
    yield name, command
    for sub, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{name} {sub}")


COMMANDS = dict(commands())
PARAMETERS = {
    f"{name} {parameter.name}": parameter
    for name, command in COMMANDS.items()
    for parameter in command.params
    if not getattr(parameter, "hidden", False)
}


def test_the_bare_command_names_the_purposes_before_its_help() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    purposes, usage, _ = result.output.partition("Usage:")
    assert usage
    assert purposes.count("$ vllm-harness") >= 5


@pytest.mark.parametrize("checkout", [Path(), None])
def test_the_purposes_fit_a_screen_and_exist(checkout: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(welcome, "checkout", lambda: checkout)
    lines = welcome.welcome().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= LINE
    for line in lines:
        if words := line.partition("$ vllm-harness ")[2].split():
            check_harness(words)
    assert any("vllm-harness run" in line for line in lines) == (checkout is not None)


def test_the_versions_to_compare_are_locked() -> None:
    named = re.findall(r"--vllm (\S+)", welcome.welcome())
    assert {each for text in named for each in text.split(",")} <= {lock.version for lock in locks()}


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"vllm-harness {version('vllm-harness')}\n")


def test_a_command_starts_without_the_others() -> None:
    code = (
        "import sys, typer; from vllm_harness.cli.main import app;"
        "typer.main.get_command(app).commands['validate'].commands['explain']; print(*sys.modules)"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(imported.stdout.split())
    assert "vllm_harness.cli.validate" in modules
    assert not {"pydantic", "httpx2", "yaml", "vllm_harness.cli.serve"} & modules


@pytest.mark.parametrize("name", COMMANDS)
def test_the_first_line_of_a_command_says_what_it_does(name: str) -> None:
    first = (COMMANDS[name].help or "").partition("\n\n")[0]
    assert re.fullmatch(r"[A-Z][^\n]*\.", first), first
    assert len(first) <= 110


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_help_of_a_parameter_is_a_phrase(name: str) -> None:
    text = PARAMETERS[name].help or ""
    assert re.fullmatch(r"\S+ .*\.", text, re.S), text
