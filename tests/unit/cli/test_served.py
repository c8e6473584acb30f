"""Every command that needs a server has the same options for it, and receives their values."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from vllm_harness.cli.main import app
from vllm_harness.cli.option_table import from_table
from vllm_harness.cli.options import ServerOptions

ROOT = typer.main.get_command(app)
NAMES = [each.name for each in fields(ServerOptions)]


@pytest.mark.parametrize(
    "path",
    [
        "run",
        pytest.param("load", marks=pytest.mark.extra("load")),
        "cassette record",
        "cassette replay",
        "scenario run",
    ],
)
def test_a_command_has_all_options_in_one_row(path: str) -> None:
    command = ROOT
    for name in path.split():
        command = command.commands[name]  # type: ignore[attr-defined]
    names = [parameter.name for parameter in command.params]
    begin = names.index(NAMES[0])
    assert names[begin : begin + len(NAMES)] == NAMES


def test_values_reach_the_command() -> None:
    calls: list[tuple[str, ServerOptions, bool]] = []
    small = typer.Typer()

    @small.command()
    @from_table
    def command(
        name: Annotated[str, typer.Argument()], *, server_options: ServerOptions, quiet: bool = False
    ) -> None:
        calls.append((name, server_options, quiet))

    words = ["qwen3", "--lane", "scripted", "--server-url", "http://127.0.0.1:9", "--cold-start", "--quiet"]
    result = CliRunner().invoke(small, words)
    assert result.exit_code == 0, result.output
    expected = ServerOptions(lane="scripted", server_url="http://127.0.0.1:9", cold_start=True)
    assert calls == [("qwen3", expected, True)]
