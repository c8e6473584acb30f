"""CONTRIBUTING.md names files and commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from vllm_harness._extensions import rule_modules
from vllm_harness._protocol.core.examples import OPERATIONS
from vllm_harness._protocol.core.rule import Rule
from vllm_harness._protocol.rules import RULE_MODULES
from vllm_harness.cli.main import app

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
CODE = re.findall(r"`([^`\n]+)`|^\$ (.*?)(?:  +#.*)?$", TEXT, re.M)
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


@pytest.mark.extra("gateways")
def test_every_band_of_rules_has_its_module() -> None:
    bands = {
        Path(module.__file__)
        .relative_to(ROOT / "harness/vllm_harness")
        .as_posix()
        .removeprefix("_protocol/"): {
            value.code[:3] for value in vars(module).values() if isinstance(value, Rule)
        }
        for module in (*RULE_MODULES, *rule_modules())
    }
    rows = [line.split("|") for line in TEXT.splitlines() if re.match(r"\| `[A-Z]{2}\d`", line)]
    assert {row[3].strip(" `"): set(re.findall(r"[A-Z]{2}\d", row[1])) for row in rows} == bands


def test_every_edit_of_an_example_is_documented() -> None:
    assert set(re.findall(r'`\("(\w+)", ', TEXT)) == {*OPERATIONS, "replace"}
