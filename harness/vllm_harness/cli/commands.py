"""The commands by name; each is imported only when it is used, so that it starts quickly."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from vllm_harness import _extensions as extensions
from vllm_harness._files.paths import checkout
from vllm_harness.cli.arguments import with_new_names
from vllm_harness.cli.by_default import by_default
from vllm_harness.cli.option_table import from_table

PANELS = {
    "Set up and serve": ("init", "doctor", "serve", "models", "env"),
    "Test": ("run", "scenario", "book"),
    "Find what is wrong": ("validate", "regression", "repro", "defects"),
    "Look at results": ("report", "compare", "cassette"),
}
"""The help panels of the core commands, by purpose."""
EXTRAS = "Extras"
"""The help panel of the commands that extras add."""
CORE: Mapping[str, str | typer.Typer] = {
    "init": "init.init",
    "doctor": "doctor.doctor",
    "serve": typer.Typer(
        cls=by_default("start"), no_args_is_help=True, help="Start a server, list running servers, stop them."
    ),
    "serve start": "serve.serve",
    "serve ps": "ps.ps",
    "serve stop": "ps.stop",
    "models": "models.app",
    "env": "env.app",
    "env assets": "assets.app",
    "run": "run.run",
    "scenario": "scenario.app",
    "book": "book.app",
    "validate": typer.Typer(
        cls=by_default("check"),
        no_args_is_help=True,
        help="Check recorded streams and bodies against the rules of their API.",
    ),
    "validate check": "validate.validate",
    "validate explain": "validate.explain",
    "regression": "regression.app",
    "repro": "repro.app",
    "defects": "defects.app",
    "report": "report.app",
    "compare": "compare.compare",
    "cassette": typer.Typer(no_args_is_help=True, help="Record conversations, replay and convert them."),
    "cassette record": "record.record",
    "cassette replay": "replay.replay",
}
"""The core commands, each as a Typer group, or as the MODULE.NAME of a function or Typer group."""
OF_A_CHECKOUT = {"run", "mutants serving", "site"}
PASSING_ON = {"serve start", "run"}
"""The commands that pass on unknown options, to vLLM or pytest."""
_EXAMPLES = Path(__file__).with_name("examples.txt").read_text().splitlines()


class Commands(TyperGroup):
    """The commands of `vllm-harness`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Imported(_below(""))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments, including old names."""
        return super().parse_args(ctx, with_new_names(args))


class _Imported(UserDict[str, Any]):
    """Commands by name; a command that is given by its full name is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        target = self.data[name]
        return _command(target) if isinstance(target, str) else target


def _places() -> dict[str, str | typer.Typer]:
    return {**CORE, **extensions.COMMANDS}


def _below(group: str) -> dict[str, str]:
    """The full names of a group's commands, by their last word."""
    names = [name.rpartition(" ") for name in _places()]
    return {last: f"{before} {last}".strip() for before, _, last in names if before == group}


@cache
def _command(name: str) -> Any:
    last, passes_on = name.rpartition(" ")[2], name in PASSING_ON
    hidden = name in OF_A_CHECKOUT and not checkout()
    try:
        target = _target(name)
    except extensions.MissingExtra as error:
        target, passes_on, hidden = _raising(error), True, True
    group = typer.Typer(pretty_exceptions_enable=False)
    if isinstance(target, typer.Typer):
        for info in (target.registered_callback, *target.registered_commands):
            if info and info.callback:
                info.callback = from_table(info.callback)
        group.add_typer(target, name=last, hidden=hidden, rich_help_panel=_panel(name))
    else:
        settings = {"allow_extra_args": passes_on, "ignore_unknown_options": passes_on}
        group.command(last, context_settings=settings, hidden=hidden, rich_help_panel=_panel(name))(
            from_table(target)
        )
    command = typer.main.get_group(group).commands[last]
    command.epilog = _example(name)
    if isinstance(command, TyperGroup):
        for child, inner in command.commands.items():
            inner.epilog = _example(f"{name} {child}")
        command.commands = _Imported({**command.commands, **_below(name)})
    return command


def _example(name: str) -> str | None:
    """The example of a command: the first line of `examples.txt` that starts with its name."""
    return next((f"$ {line}" for line in _EXAMPLES if f"{line} ".startswith(f"vllm-harness {name} ")), None)


def _panel(name: str) -> str | None:
    for panel, names in PANELS.items():
        if name in names:
            return panel
    return None if " " in name else EXTRAS


def _target(name: str) -> Any:
    place = _places()[name]
    if not isinstance(place, str):
        return place
    if ":" in place:
        return extensions.load(place, f"`vllm-harness {name}`")
    module, _, attribute = place.partition(".")
    return getattr(import_module(f"vllm_harness.cli.{module}"), attribute)


def _raising(error: extensions.MissingExtra) -> Any:
    def command() -> None:
        raise error

    command.__doc__ = f"Needs{error.message.partition(' needs')[2]}."
    return command
