"""`vllm-harness`: the command line, a thin layer over the package."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vllm_harness._errors import HarnessError
from vllm_harness._files.folders import explained
from vllm_harness._machine import interrupts
from vllm_harness._terminal.tables import printable
from vllm_harness.cli.arguments import with_address
from vllm_harness.cli.commands import Commands
from vllm_harness.cli.option_table import option
from vllm_harness.cli.streams import CLOSED_PIPE, safe_streams
from vllm_harness.cli.welcome import version_line, welcome

app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False)


def _print_version(requested: bool) -> None:
    if requested:
        print(version_line())
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, option("version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """Launch real vLLM servers and check what their clients see."""
    if context.invoked_subcommand is None:
        print(f"{welcome()}\n")
        print(context.get_help())


def main() -> int:
    """Runs the app, and returns its exit code after the message of an error."""
    sys.argv[1:] = with_address(sys.argv[1:])
    try:
        with safe_streams():
            app()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except Exception as raised:
        if (error := explained(raised)) is None:
            traceback.print_exc()
            error = HarnessError(f"the harness failed: {type(raised).__name__}", hint="report what is above")
        if error.exit_code != CLOSED_PIPE:
            Console(stderr=True, highlight=False, soft_wrap=True).print(
                f"[bold red]error[/]: {escape(printable(str(error)))}", markup=True
            )
        return interrupts.exit_code(error.exit_code)
    return 0
