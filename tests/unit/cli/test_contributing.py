"""CONTRIBUTING.md names files and commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from vllm_harness.cli.main import app

ROOT = Path(__file__).parents[3]
CODE = re.findall(r"`([^`\n]+)`|^\$ (.*?)(?:  +#.*)?$", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
SPANS = sorted({" ".join(filter(None, span)) for span in CODE})
FILES = [span for span in SPANS if re.fullmatch(r"[\w./-]+/[\w./-]*|[\w-]+\.(md|yaml|toml|txt)", span)]
COMMANDS = [span for span in SPANS if span.startswith("vllm-harness ")]


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith(".venv")])
def test_the_file_exists(name: str) -> None:
    assert (ROOT / name).exists() or list((ROOT / "harness").rglob(name))


@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_exists(line: str) -> None:
    words = shlex.split(line.partition(" -- ")[0])[1:]
    command: Any = typer.main.get_command(app)
    assert words[0] in command.commands
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
