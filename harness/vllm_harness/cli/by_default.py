"""Groups with a default command: `report RUN` is `report show RUN`."""

from __future__ import annotations

from copy import copy
from typing import Any

from typer.core import TyperGroup

HELP = "--help"


def by_default(name: str) -> type[TyperGroup]:
    """Creates the class of a command group that runs this command if the arguments do not name any."""

    class ByDefault(TyperGroup):
        """A group with a default command."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Parses the arguments, after adding the default command if they do not name a command."""
            unnamed = args and args[0] not in self.commands and args[0] != HELP
            return super().parse_args(ctx, [name, *args] if unnamed else args)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            """Shows the arguments and options of the default command, followed by all commands."""
            shown, command = copy(self), self.commands[name]
            shown.params, shown.help, shown.subcommand_metavar = command.params, command.help, ""
            shown.epilog = command.epilog
            TyperGroup.format_help(shown, ctx, formatter)

    return ByDefault
