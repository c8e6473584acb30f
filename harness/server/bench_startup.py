"""Start-up time of RemoteServer beside a bare launch of the same command (`scripts/bench-startup`)."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import tempfile
import time
from typing import Annotated

import requests
import typer
from rich.console import Console
from rich.table import Table

from harness.commands.options import LANE, VLLM, environment
from harness.registry import load_registry
from harness.server.launch import Launch, plan_launch
from harness.server.ports import lease_port
from harness.server.progress import ConsoleProgress
from harness.server.remote import POLL_S, RemoteServer

console = Console(highlight=False)


def main(
    model: Annotated[str, typer.Argument(help="Model entry.")] = "qwen3",
    lane: LANE = "scripted",
    pairs: Annotated[int, typer.Option(help="How many pairs, after one warm-up.", min=1)] = 3,
    vllm: VLLM = None,
) -> None:
    """Times pairs of starts, the order swapped each time, and prints the median ratio."""
    launch = plan_launch(
        load_registry().get(model), environment(vllm, None, None), lane=lane or "live", progress=console.print
    )
    console.print(f"{model} ({lane}), {launch.environment.describe()}; warm-up")
    bare_start(launch)
    ratios = []
    table = Table("pair", "bare", "RemoteServer", "ratio", "phases of RemoteServer (s)")
    for pair in range(1, pairs + 1):
        if pair % 2:
            bare, (ours, phases) = bare_start(launch), harness_start(launch)
        else:
            (ours, phases), bare = harness_start(launch), bare_start(launch)
        ratios.append(ours / bare)
        told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in phases.items())
        table.add_row(str(pair), f"{bare:.1f} s", f"{ours:.1f} s", f"{ratios[-1]:.3f}", told)
    console.print(table)
    console.print(f"median ratio RemoteServer / bare: {statistics.median(ratios):.3f}")


def harness_start(launch: Launch) -> tuple[float, dict[str, float]]:
    """Seconds from before the call to a ready server, everything included, and the phases on the way."""
    begin = time.monotonic()
    with RemoteServer(launch, progress=ConsoleProgress()) as server:
        return time.monotonic() - begin, server.phases


def bare_start(launch: Launch) -> float:
    """Seconds from exec to the first 200 of /health, of the same command without the harness."""
    lease = lease_port()
    with tempfile.TemporaryDirectory(prefix="vh-bare-") as tmp:
        env = {**launch.environ(), "TMPDIR": tmp, "VH_SCRIPT_DIR": tmp}
        begin = time.monotonic()
        process = subprocess.Popen(
            launch.argv(lease.port),
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _wait_healthy(process, lease.port)
            elapsed = time.monotonic() - begin
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            time.sleep(2)
            lease.release()
    console.print(f"bare start: {elapsed:.1f} s")
    return elapsed


def _wait_healthy(process: subprocess.Popen[bytes], port: int) -> None:
    while process.poll() is None:
        try:
            if requests.get(f"http://127.0.0.1:{port}/health", timeout=5).ok:
                return
        except requests.RequestException:
            time.sleep(POLL_S)
    raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
