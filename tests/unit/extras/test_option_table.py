"""Every option of every command is a row in one table, and every help page fits on a screen."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from tests.docs.commands import check_harness
from tests.unit.cli.test_help import COMMANDS
from vllm_harness._regression.cases.case import GROUPS
from vllm_harness._scenarios.transports import TRANSPORTS
from vllm_harness._testing import options as plugin
from vllm_harness.cli import commands
from vllm_harness.cli.main import app
from vllm_harness.cli.option_table import MANY, OPTIONS, from_table, named, option
from vllm_harness.cli.run import RunOptions
from vllm_harness.extras.weights.command import DTYPES

LINES, COLUMNS = 60, 80
TYPES = {"flag": bool, "text": str, "int": int, "float": float, "path": Path}
WORDS = {flag: flag.removeprefix("--vllm-") for flag in plugin.OPTIONS}
WORDS |= {"--vllm": "vllm", "--vllm-python": "vllm-python"}
ONLY_OF_PYTEST = {
    "server-arg",
    "slow",
    "quality-reference",
    "write-quality-reference",
    "record-tokens",
    "replay-tokens",
}
OPTIONS_OF_COMMANDS = {
    f"{command} {parameter.opts[0]}": parameter
    for command, each in COMMANDS.items()
    for parameter in each.params
    if parameter.param_type_name == "option"
}


def values(annotation: Any) -> Iterator[Any]:
    """Yields the types of an annotation, without None, lists and `Annotated`."""
    origin = get_origin(annotation)
    if origin in (Annotated, list):
        yield from values(get_args(annotation)[0])
    elif origin in (types.UnionType, Union):
        for each in get_args(annotation):
            yield from values(each)
    elif annotation is not type(None):
        yield annotation


@pytest.mark.parametrize("name", OPTIONS_OF_COMMANDS)
def test_an_option_is_its_row(name: str) -> None:
    shown = OPTIONS_OF_COMMANDS[name]
    row = OPTIONS[shown.opts[0].removeprefix("--")]
    assert shown.opts == [f"--{named(shown.name)}", *([f"-{row.short}"] if row.short else [])]
    assert shown.help in (row.help, f"{row.help.removesuffix('.')}; repeatable.")
    assert shown.help.endswith("; repeatable.") == shown.multiple
    assert shown.hidden == (row.panel == "hidden")
    assert shown.metavar == (row.metavar if row.metavar or row.type == "flag" else None)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_type_of_an_option_is_that_of_its_row(name: str) -> None:
    hints = get_type_hints(COMMANDS[name].callback or (lambda: None), include_extras=True)
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "option":
            row = OPTIONS[named(parameter.name)]
            for value in values(hints[parameter.name]):
                if row.type == "choice":
                    assert get_origin(value) is Literal or issubclass(value, Enum)
                else:
                    assert value is TYPES[row.type]


def test_every_row_is_used() -> None:
    assert {name.rpartition(" --")[2] for name in OPTIONS_OF_COMMANDS} == set(OPTIONS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_with_many_options_has_panels(name: str) -> None:
    options = [each for each in COMMANDS[name].params if each.param_type_name == "option" and not each.hidden]
    panels = [OPTIONS[each.opts[0].removeprefix("--")].panel for each in options]
    assert [each.rich_help_panel for each in options] == [
        each if len(options) > MANY else None for each in panels
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_page_fits_a_screen(name: str) -> None:
    words = name.split()[1:]
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(COLUMNS)}, terminal_width=COLUMNS)
    lines = shown.output.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "vllm-harness"])
def test_a_command_has_an_example(name: str) -> None:
    example = COMMANDS[name].epilog
    assert example
    assert example.startswith(f"$ {name}")
    check_harness(example.removeprefix("$ vllm-harness ").replace("'", "").split())


def test_every_example_is_shown() -> None:
    lines = Path(inspect.getfile(commands)).with_name("examples.txt").read_text().splitlines()
    assert {f"$ {line}" for line in lines} == {each.epilog for each in COMMANDS.values() if each.epilog}


def test_a_parameter_without_a_row_is_refused() -> None:
    with pytest.raises(KeyError, match="no-such-name"):
        from_table(lambda no_such_name="": None)


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        (["--bundle", "b"], "--bundle needs --ray or --resume"),
        (["--timed"], "--timed needs --serve"),
        (["--bundle", "b", "--ray", "a"], ""),
        (["--bundle", "b", "--resume", "r"], ""),
        (["--timed", "--serve", "0"], ""),
    ],
)
def test_an_option_needs_its_others(given: list[str], refusal: str) -> None:
    small = typer.Typer()

    @small.command()
    @from_table
    def command(
        ray: str = "",
        resume_: str = "",
        bundle: list[Path] | None = None,
        serve: int | None = None,
        timed: bool = False,
    ) -> None:
        pass

    result = CliRunner().invoke(small, given)
    assert getattr(result.exception, "message", "") == refusal


def test_a_number_below_the_least_is_refused() -> None:
    small = typer.Typer()

    @small.command()
    def command(jobs: Annotated[int | None, option("jobs")] = None) -> None:
        pass

    assert CliRunner().invoke(small, ["--jobs", "0"]).exit_code == 2
    assert CliRunner().invoke(small, ["--jobs", "1"]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "choices"),
    [("cases", GROUPS), ("transport", tuple(TRANSPORTS)), ("dtype", DTYPES)],
)
def test_a_help_text_lists_every_choice(name: str, choices: tuple[str, ...]) -> None:
    assert all(choice in OPTIONS[name].help for choice in choices)


@pytest.mark.parametrize("flag", plugin.OPTIONS)
def test_the_plugin_has_the_same_words(flag: str) -> None:
    name = WORDS[flag]
    assert (name in OPTIONS) == (name not in ONLY_OF_PYTEST)
    if name in OPTIONS:
        assert plugin.OPTIONS[flag]["help"].startswith(OPTIONS[name].help.removesuffix("."))
    else:
        assert re.fullmatch(r"[A-Z].*\.", plugin.OPTIONS[flag]["help"])


def test_run_passes_on_options_of_the_plugin() -> None:
    given = RunOptions(vllm="0.32.0", vllm_python=Path("p"), cold_start=True, lane="live", model=["a", "b"])
    flags = set(given.for_pytest([each.name for each in fields(RunOptions)]))
    assert {flag.partition("=")[0] for flag in flags} < set(plugin.OPTIONS)
    assert flags > {
        "--vllm=0.32.0",
        "--vllm-python=p",
        "--vllm-cold-start",
        "--vllm-model=a",
        "--vllm-model=b",
    }
