"""Checks that the current programs accept the command lines in the manual."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import typer
from typer.core import TyperGroup

from tests.docs.blocks import ROOT
from vllm_harness._testing import options
from vllm_harness.cli.arguments import with_address, with_new_names
from vllm_harness.cli.main import app

_VARIABLE = re.compile(r"[A-Z_]+=")
_OTHERS = {"cd", "export", "openssl"}
_MARKERS = {re.split(r"\W", marker)[0] for marker in options.MARKERS} | {"gpu"}  # tests/conftest.py's own
_OF_THE_CHECKOUT = {"ci", "env", "tests"}


def check(line: str) -> None:
    """Raises AssertionError or typer's usage error if the current programs do not accept a command line.

    Args:
        line: the line as a user would type it.
    """
    words = shlex.split(line, comments=True)
    while words and _VARIABLE.match(words[0]):
        words = words[1:]
    program, *arguments = words
    named = [word for word in arguments if word.split("/")[0] in _OF_THE_CHECKOUT]
    assert all((ROOT / word).exists() for word in named), named
    match program:
        case "vllm-harness":
            check_harness(arguments)
        case "pytest":
            check_pytest(arguments, pytest_options(ROOT / "docs"))
        case "pip" | "uv":
            check_requirements(arguments)
        case "python":
            pass  # an argument names a script of the checkout
        case _ if program.startswith("scripts/"):
            check_script(program, arguments)
        case _:
            assert program in _OTHERS, f"{program}: no check knows this program"


def check_harness(arguments: list[str]) -> None:
    """Parses the arguments of `vllm-harness` without running anything."""
    own, passed_on = split(arguments)
    own = with_address(own)
    assert with_new_names(own) == own, "the command has an old name"
    command = typer.main.get_command(app)
    name = "vllm-harness"
    while True:
        context = command.make_context(name, list(own))
        own = [*context._protected_args, *context.args]
        if not isinstance(command, TyperGroup) or not own:
            break
        found, resolved, own = command.resolve_command(context, own)
        assert resolved is not None, own
        command, name = resolved, found or name
    assert not own, f"{name} does not know {own}"
    if name == "run":
        check_pytest(passed_on, pytest_options(ROOT))
    else:
        assert not passed_on or name == "start", f"{name} does not accept arguments after --"


def check_pytest(arguments: list[str], known: frozenset[str]) -> None:
    """Checks that pytest knows each option, and the marker after `-m`."""
    given = {argument.split("=")[0] for argument in arguments if argument.startswith("--")}
    assert given <= known, f"pytest does not know {', '.join(sorted(given - known))}"
    if "-m" in arguments:
        marker = arguments[arguments.index("-m") + 1]
        assert marker in _MARKERS, f"there is no marker {marker}"


def check_requirements(arguments: list[str]) -> None:
    """Checks that this package has the extras that a requirement names."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for argument in arguments:
        if match := re.fullmatch(r"(?:vllm-harness|\.|\S+\.whl)\[(.*)\]", argument):
            assert set(match[1].split(",")) <= set(extras), argument


def check_script(program: str, arguments: list[str]) -> None:
    """Checks that a script in the checkout exists, and that it or pytest knows the options."""
    script = ROOT / program
    assert script.is_file(), program
    own, passed_on = split(arguments)
    match program:
        case "scripts/run":
            check_harness(["run", *arguments])
        case "scripts/test" if own != ["--all"]:
            check_pytest(own, pytest_options(ROOT))
        case _:
            assert all(word in script.read_text() for word in own if word.startswith("--")), own
            check_pytest(passed_on, pytest_options(ROOT))


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before `--`, and those after it."""
    where = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:where], arguments[where + 1 :]


@cache
def pytest_options(folder: Path) -> frozenset[str]:
    """The options that `pytest --help` lists in a folder; the repository's own only in its root."""
    configuration = [] if folder == ROOT else ["-c", "/dev/null", "--rootdir", str(folder)]
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", *configuration, "--help"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(re.findall(r"--[a-z][\w-]*", listed.stdout)) | {"--"}
