"""`vllm-harness doctor`: what this machine can run."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from harness.doctor import Report, examine, in_the_way
from harness.errors import UsageError


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    servers: Annotated[
        int | None, typer.Option(help="Only say, in one line, what keeps so many servers from running here.")
    ] = None,
) -> None:
    """Print what this machine can run and what is missing, with remedies. Exit code 1: nothing can run."""
    if servers is not None:
        if why := in_the_way(servers):
            raise UsageError(f"this machine cannot run {servers} CPU servers at once: {why}")
        return
    report = examine()
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _print(report)
    raise typer.Exit(0 if report.can_run else 1)


def _print(report: Report) -> None:
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(check.topic) for check in report.checks)
    for check in report.checks:
        mark = "[green]ok[/]" if check.state == "ok" else "[yellow]--[/]"
        console.print(f"{mark} {check.topic:{width}}  {escape(check.found)}")
        if check.remedy:
            console.print(f"{'':{width + 5}}{escape(check.remedy)}", style="yellow")
    for line in report.can_run or ["nothing: there is neither vLLM nor uv to install it"]:
        console.print(f"can run {line}")
