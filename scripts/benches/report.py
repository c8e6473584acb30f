"""What keeping a run folder costs: CPU time of pytest and of the server (`scripts/bench-report`)."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console
from rich.table import Table

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._server.launch import plan_launch
from vllm_harness._server.process_tree import tree_pids
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._server.remote import RemoteServer
from vllm_harness.cli.option_table import option
from vllm_harness.cli.options import environment

ROOT = Path(__file__).parents[2]
WAYS = {"without": [], "--vllm-output": ["--vllm-output"], "and all": ["--vllm-report-all", "--vllm-output"]}

console = Console(highlight=False)


def main(
    model: Annotated[str, typer.Argument(help="Model entry.")] = "qwen3",
    select: Annotated[str, typer.Option(help="Which tests of tests/behaviours: pytest's -k.")] = "responses",
    rounds: Annotated[int, typer.Option(help="How often, after a warm-up: a multiple of 3.", min=1)] = 6,
    vllm: Annotated[str | None, option("vllm")] = None,
) -> None:
    """Runs the same tests on one server, with a run folder and without, in turn; prints the medians.

    A server grows slower with each run, so each round begins with another way.
    """
    entry = load_models().get(model)
    launch = plan_launch(entry, environment(vllm, None, None), lane="scripted", progress=console.print)
    spent: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with RemoteServer(launch, progress=ConsoleProgress()) as server, tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            for way in _turned(list(WAYS), number):
                flags = WAYS[way]
                given = [*flags, str(Path(folder) / f"{number}-{len(flags)}")] if flags else []
                figures = _cpu_s(server, select, given)
                if number:
                    spent[way].append(figures)
                console.print(
                    f"{'round' if number else 'warm-up'} {number}, {way}: {figures[0]:.2f} s of pytest, "
                    f"{figures[1]:.2f} s of the server"
                )
    _show(spent)


def _turned(ways: list[str], number: int) -> list[str]:
    first = number % len(ways)
    return ways[first:] + ways[:first]


def _show(spent: dict[str, list[tuple[float, float]]]) -> None:
    table = Table("", "pytest, CPU s", "server, CPU s", "both, CPU s", "more")
    reference = statistics.median(map(sum, spent["without"]))
    for way, figures in spent.items():
        client, server, both = (
            statistics.median(values) for values in (*zip(*figures, strict=True), [*map(sum, figures)])
        )
        table.add_row(way, f"{client:.2f}", f"{server:.2f}", f"{both:.2f}", f"{both / reference - 1:+.1%}")
    console.print(table)


def _cpu_s(server: RemoteServer, select: str, flags: list[str]) -> tuple[float, float]:
    """The CPU time of pytest and of the server's processes for one run of the tests."""
    url = server.endpoint.base_url
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/behaviours",
        "-k",
        select,
    ]
    command += [f"--vllm-model={server.model}", f"--vllm-server-url={url}", f"--vllm-books-url={url}", *flags]
    client, served = os.times(), _server_cpu_s(server)
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if ended.returncode:
        console.print(ended.stdout[-2000:])
        raise typer.Exit(1)
    now = os.times()
    spent = now.children_user + now.children_system - client.children_user - client.children_system
    return spent, _server_cpu_s(server) - served


def _server_cpu_s(server: RemoteServer) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in tree_pids(server.pid))


if __name__ == "__main__":
    typer.run(main)
