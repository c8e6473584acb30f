"""`vllm-harness`: the command line, a thin layer over the package."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vllm_harness.cli import (
    assets,
    bisect,
    book,
    bundle,
    check_weights,
    convert,
    defects,
    diff,
    doctor,
    env,
    export,
    gateway,
    init,
    load,
    models,
    mutants,
    parity,
    ps,
    record,
    regression,
    replay,
    report,
    repro,
    run,
    scenario,
    serve,
    site,
    upstream,
    validate,
)
from vllm_harness.cli.cluster import with_address
from vllm_harness.cli.welcome import version_line, welcome
from vllm_harness.errors import HarnessError
from vllm_harness.files.paths import checkout
from vllm_harness.terminal.printable import printable

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command()(init.init)
app.command(context_settings=PASS_ON)(serve.serve)
app.command(context_settings=PASS_ON, hidden=not checkout())(run.run)
app.command(hidden=not checkout())(mutants.mutants)
app.command(hidden=not checkout())(site.site)
app.add_typer(book.app, name="book")
app.command()(validate.validate)
app.command()(validate.explain)
app.add_typer(gateway.app, name="gateway")
app.command()(doctor.doctor)
app.command()(check_weights.check_weights)
app.command()(ps.ps)
app.command()(ps.stop)
app.add_typer(scenario.app, name="scenario")
app.command()(record.record)
app.command()(replay.replay)
app.command()(diff.diff)
app.command()(convert.convert)
app.command()(load.load)
app.add_typer(report.app, name="report")
app.add_typer(repro.app, name="repro")
app.add_typer(regression.app, name="regression")
app.command("parity")(parity.parity_)
app.command("bisect")(bisect.bisect_)
defects.app.command()(export.export)
app.add_typer(defects.app, name="defects")
app.add_typer(models.app, name="models")
app.add_typer(env.app, name="env")
app.add_typer(assets.app, name="assets")
app.add_typer(bundle.app, name="bundle")
app.add_typer(upstream.app, name="upstream")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version_line())
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and exit."
        ),
    ] = False,
) -> None:
    """Launch real vLLM servers and check what their clients see."""
    if context.invoked_subcommand is None:
        print(f"{welcome()}\n")
        print(context.get_help())


def main() -> None:
    """The console script: runs the app, and turns a HarnessError into its message and exit code.

    SIGTERM ends a command as Ctrl-C does: its servers are given back, and what it has found is kept.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.argv[1:] = with_address(sys.argv[1:])
    try:
        app()
    except HarnessError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"[bold red]error[/]: {escape(printable(str(error)))}", markup=True
        )
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
