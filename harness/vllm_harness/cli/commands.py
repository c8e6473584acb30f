"""The commands by name; each is imported when it is asked for, so that it starts without the others."""

from __future__ import annotations

from collections import UserDict
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from vllm_harness import extensions
from vllm_harness.files.paths import checkout

CORE = {
    "init": "init.init",
    "serve": "serve.serve",
    "run": "run.run",
    "book": "book.app",
    "validate": "validate.validate",
    "explain": "validate.explain",
    "doctor": "doctor.doctor",
    "ps": "ps.ps",
    "stop": "ps.stop",
    "scenario": "scenario.app",
    "record": "record.record",
    "replay": "replay.replay",
    "diff": "diff.diff",
    "convert": "convert.convert",
    "report": "report.app",
    "repro": "repro.app",
    "regression": "regression.app",
    "parity": "parity.parity_",
    "bisect": "bisect.bisect_",
    "defects": "export.app",
    "models": "models.app",
    "env": "env.app",
    "assets": "assets.app",
}
"""The module of each command of the core, and in it its function or its group of commands."""
OF_A_CHECKOUT = {"run", "mutants", "site"}
PASSING_ON = {"serve", "run"}
"""Those that pass on what they do not know."""


class Commands(TyperGroup):
    """The commands of `vllm-harness`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Imported({**CORE, **extensions.COMMANDS})


class _Imported(UserDict[str, Any]):
    """The commands, each imported where it is looked up."""

    def __getitem__(self, name: str) -> Any:
        return _command(name, self.data[name])


@cache
def _command(name: str, where: str) -> Any:
    passes_on, hidden = name in PASSING_ON, name in OF_A_CHECKOUT and not checkout()
    try:
        found = _found(name, where)
    except extensions.MissingExtra as error:
        found, passes_on, hidden = _raising(error), True, True
    group = typer.Typer(pretty_exceptions_enable=False)
    if isinstance(found, typer.Typer):
        group.add_typer(found, name=name)
    else:
        settings = {"allow_extra_args": passes_on, "ignore_unknown_options": passes_on}
        group.command(name, context_settings=settings, hidden=hidden)(found)
    return typer.main.get_group(group).commands[name]


def _found(name: str, where: str) -> Any:
    if ":" in where:
        return extensions.load(where, f"`vllm-harness {name}`")
    module, _, attribute = where.partition(".")
    return getattr(import_module(f"vllm_harness.cli.{module}"), attribute)


def _raising(error: extensions.MissingExtra) -> Any:
    def command() -> None:
        raise error

    return command
