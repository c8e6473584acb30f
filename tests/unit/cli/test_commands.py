"""The first screen, the old names of commands, and the message for a missing extra."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from vllm_harness import _extensions as extensions
from vllm_harness._files.paths import checkout
from vllm_harness._terminal.notices import shown_by
from vllm_harness.cli import commands
from vllm_harness.cli.arguments import RENAMED, RENAMED_OPTIONS, with_new_names
from vllm_harness.cli.executor import keep_command, resume
from vllm_harness.cli.main import app

ROOT: Any = typer.main.get_command(app)


@pytest.fixture
def notices() -> Iterator[list[str]]:
    """Collects the notices that a test causes."""
    texts: list[str] = []
    with shown_by(texts.append):
        yield texts


@pytest.fixture
def _without_extras(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(extensions, "installed", lambda extra: False)
    commands._command.cache_clear()
    yield
    commands._command.cache_clear()


def invoke(*arguments: str) -> Result:
    """Runs the command line with these arguments."""
    return CliRunner().invoke(app, arguments)


def panels() -> dict[str, list[str]]:
    """The commands that the first screen shows, by panel."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        if not command.hidden:
            names[command.rich_help_panel].append(name)
    return dict(names)


def test_the_first_screen_has_five_panels() -> None:
    shown = panels()
    extras = shown.pop(commands.EXTRAS, [])
    assert list(shown) == list(commands.PANELS)
    assert len(shown) == 4
    left_out = set() if checkout() else commands.OF_A_CHECKOUT
    for panel, names in commands.PANELS.items():
        assert shown[panel] == [name for name in names if name not in left_out]
    assert sum(map(len, commands.PANELS.values())) <= 15
    installed = [
        name for name, place in extensions.COMMANDS.items() if extensions.installed(place.partition(":")[0])
    ]
    assert extras == [name for name in installed if " " not in name and name not in left_out]


def test_every_panel_fits_80_columns() -> None:
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"})
    lines = result.output.splitlines()
    assert [line.split(" ", 2)[1:] for line in lines if "╭─" in line and "Options" not in line]
    assert max(map(len, lines)) <= 80


@pytest.mark.usefixtures("_without_extras")
def test_without_extras_the_first_screen_is_the_core() -> None:
    assert commands.EXTRAS not in panels()
    assert "bundle" not in invoke("env", "--help").output


@pytest.mark.usefixtures("_without_extras")
@pytest.mark.parametrize("name", extensions.COMMANDS)
def test_without_its_extra_a_command_says_what_to_install(name: str) -> None:
    extra = extensions.COMMANDS[name].partition(":")[0]
    error = invoke(*name.split(), "--an-option", "x").exception
    assert isinstance(error, extensions.MissingExtra)
    assert str(error) == (
        f"`vllm-harness {name.split()[0] if extra == 'mutants' else name}` needs the extra `{extra}`, "
        f"which is not installed\n  try: pip install 'vllm-harness[{extra}]'"
    )


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_is_the_new_command(old: str, notices: list[str]) -> None:
    now = invoke(*RENAMED[old].split(), "--no-such-option")
    assert not notices
    before = invoke(*old.split(), "--no-such-option")
    assert notices == [
        f"`vllm-harness {old}` is now `vllm-harness {RENAMED[old]}`; the old name will be removed in 0.2"
    ]
    assert (before.exit_code, before.output) == (now.exit_code, now.output)
    assert repr(before.exception) == repr(now.exception)
    if not isinstance(now.exception, extensions.MissingExtra):
        assert "No such option: --no-such-option" in now.output


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_passes_all_on(old: str, notices: list[str]) -> None:
    given = ["a", "--model", "b", "--", "--parallel", "-k"]
    assert with_new_names([*old.split(), *given]) == [*RENAMED[old].split(), *given]
    assert len(notices) == 1


def test_the_notice_is_on_standard_error() -> None:
    result = invoke("explain", "RS101")
    assert result.exit_code == 0
    assert result.stdout == invoke("validate", "explain", "RS101").stdout
    assert result.stderr.splitlines() == [
        "`vllm-harness explain` is now `vllm-harness validate explain`; the old name will be removed in 0.2"
    ]


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_is_hidden(old: str) -> None:
    words = old.split()
    group = ROOT if len(words) == 1 else ROOT.commands[words[0]]
    assert words[-1] not in getattr(group, "commands", {}) or old in extensions.COMMANDS


@pytest.mark.parametrize("name", [name for name in extensions.COMMANDS if name.startswith("mutants ")])
def test_a_command_of_mutants_is_not_an_old_name(name: str, notices: list[str]) -> None:
    assert with_new_names([*name.split(), "x"]) == [*name.split(), "x"]
    assert with_new_names(["mutants", "--help"]) == ["mutants", "--help"]
    assert not notices
    assert with_new_names(["mutants"]) == ["mutants", "serving"]


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [(command, old, new) for command, options in RENAMED_OPTIONS.items() for old, new in options.items()],
)
def test_an_old_option_is_the_new_one(command: str, old: str, new: str, notices: list[str]) -> None:
    words = command.split()
    if not new:
        assert with_new_names([*words, "x", old, "--", old]) == [*words, "x", "--", old]
        assert notices == [f"`{old}` is the default; the old name will be removed in 0.2"]
        return
    assert with_new_names([*words, old, "1", f"{old}=2", "--", old]) == [
        *words,
        new,
        "1",
        f"{new}=2",
        "--",
        old,
    ]
    assert set(notices) == {f"`{old}` is now `{new}`; the old name will be removed in 0.2"}
    assert with_new_names(["doctor", old, "1"]) == ["doctor", old, "1"]


def test_a_run_of_an_old_name_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(tmp_path))
    run = tmp_path / "repro" / "mine"
    run.mkdir(parents=True)
    kept = ["repro", "run", "no-such-defect", "--parallel", "2", "--run", "mine"]
    (run / "command.json").write_text(json.dumps(kept))
    result = invoke("repro", "--resume", "mine")
    assert "no-such-defect" in str(result.exception)
    assert notices == ["`--parallel` is now `--jobs`; the old name will be removed in 0.2"]


def test_a_resumed_run_can_be_resumed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["vllm-harness", "regression", "--resume", str(tmp_path)])
    kept = ["regression", "--jobs", "2"]
    (tmp_path / "command.json").write_text(json.dumps(kept))
    for _ in range(2):
        resume("regression", str(tmp_path), "", lambda _: keep_command(tmp_path))
        assert json.loads((tmp_path / "command.json").read_text()) == [*kept, "--run", str(tmp_path)]


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (("serve", "--lane", "nowhere", "qwen3"), "serve start"),
        (("serve", "ps", "--x"), "serve ps"),
        (("validate", "--format", "nowhere", "x.sse"), "validate check"),
        (("validate", "explain", "--x"), "validate explain"),
        (("report", "--format", "nowhere", "latest"), "report show"),
        (("repro", "--x"), "repro run"),
        pytest.param(("repro", "bisect", "--x"), "repro bisect", marks=pytest.mark.extra("triage")),
        pytest.param(
            ("env", "bundle", "out", "--x"), "env bundle create", marks=pytest.mark.extra("bundles")
        ),
    ],
)
def test_a_group_runs_its_default_command(arguments: tuple[str, ...], usage: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert f"Usage: root {usage} " in result.output


def test_serve_passes_unknown_options_on() -> None:
    serve = ROOT.commands["serve"].commands["start"]
    context = serve.make_context("start", ["qwen3", "--max-model-len", "5", "--lane", "live"])
    assert context.args == ["--max-model-len", "5"]


@pytest.mark.parametrize("group", ["serve", "validate", "report", "repro"])
def test_the_help_of_a_group_shows_its_default_command(group: str) -> None:
    command = ROOT.commands[group]
    shown = CliRunner().invoke(app, [group, "--help"], env={"COLUMNS": "200"}).output
    default = {"serve": "start", "validate": "check", "report": "show", "repro": "run"}[group]
    options = [name for each in command.commands[default].params for name in each.opts if name[0] == "-"]
    visible = [name for name, each in command.commands.items() if not each.hidden]
    assert all(name in shown for name in (*options, *visible))
