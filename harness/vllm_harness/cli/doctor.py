"""`vllm-harness doctor`: reports what this machine can run."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer
from rich.table import Column, Table
from rich.text import Text

from vllm_harness._errors import UsageError
from vllm_harness._terminal.tables import on_terminal, plain_console, show_whole
from vllm_harness.cli.doctor_checks import MachineReport, examine, in_the_way


def doctor(
    json_: bool = False,
    servers: int | None = None,
) -> None:
    """Print what this machine can run, what is missing, and how to fix it.

    The exit code is 1 if nothing can run.
    """
    if servers is not None:
        if why := in_the_way(servers):
            raise UsageError(
                f"this machine cannot run {servers} CPU servers at once: {why}",
                hint="run fewer servers at once, or see the remedies of `vllm-harness doctor`",
            )
        return
    report = examine()
    if json_:
        print(json.dumps(asdict(report), indent=2))
    else:
        _print(report)
    raise typer.Exit(0 if report.can_run else 1)


def _print(report: MachineReport) -> None:
    console = plain_console()
    table = Table.grid(Column(no_wrap=True), Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for check in report.checks:
        mark = Text("ok", "green") if check.state == "ok" else Text("--", "yellow")
        table.add_row(mark, Text(check.topic), Text(check.found))
        if check.remedy:
            table.add_row("", "", Text(check.remedy, "yellow"))
    if on_terminal(console):
        console.print(table, soft_wrap=False)
    else:
        show_whole(console, table)
    for line in report.can_run or ["nothing: neither vLLM nor uv, which could install it, was found"]:
        console.print(f"can run {line}")
