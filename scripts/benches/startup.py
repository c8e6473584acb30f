"""Start-up of RemoteServer, cold and forked, beside a bare launch (`scripts/bench-startup`)."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import psutil
import requests
import typer
from rich.console import Console
from rich.table import Table

from vllm_harness._configuration.model_entries import Lane, load_models
from vllm_harness._scripted.in_server.vllm_harness_names import SCRIPT_DIR
from vllm_harness._server.launch import Launch, plan_launch
from vllm_harness._server.leases.ports import lease_port
from vllm_harness._server.process_tree import tree_pids
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._server.readiness import POLL_S
from vllm_harness._server.remote import RemoteServer
from vllm_harness.cli.option_table import option
from vllm_harness.cli.options import environment

console = Console(highlight=False)


def main(
    model: Annotated[str, typer.Argument(help="Model entry.")] = "qwen3",
    lane: Annotated[Lane | None, option("lane")] = "scripted",
    turns: Annotated[int, typer.Option(help="How many turns, after one warm-up.", min=1)] = 3,
    side_by_side: Annotated[int, typer.Option(help="Forked servers started at once, in the end.")] = 4,
    vllm: Annotated[str | None, option("vllm")] = None,
) -> None:
    """Times bare, cold and forked starts in turn, the order swapped each time, and prints median ratios.

    In the end it starts several forked servers at once, and measures their memory.
    """
    launch = plan_launch(
        load_models().get(model), environment(vllm, None, None), lane=lane or "live", progress=console.print
    )
    console.print(f"{model} ({lane}), {launch.environment.describe()}; warm-up")
    bare_start(launch)
    harness_start(launch, cold=False)
    table = Table(
        "turn", "bare", "RemoteServer", "of bare", "forked", "cold / forked", "phases of the forked (s)"
    )
    overheads, gains = [], []
    for turn in range(1, turns + 1):
        first, second = (bare_start, _cold_start) if turn % 2 else (_cold_start, bare_start)
        times = {start.__name__: start(launch) for start in (first, second)}
        bare, cold = times["bare_start"], times["_cold_start"]
        forked, phases = harness_start(launch, cold=False)
        overheads.append(cold / bare)
        gains.append(cold / forked)
        told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in phases.items())
        numbers = (
            f"{bare:.1f} s",
            f"{cold:.1f} s",
            f"{overheads[-1]:.3f}",
            f"{forked:.1f} s",
            f"{gains[-1]:.1f}",
        )
        table.add_row(str(turn), *numbers, told)
    console.print(table)
    console.print(f"median RemoteServer (cold) / bare: {statistics.median(overheads):.3f}")
    console.print(f"median cold / forked: {statistics.median(gains):.1f}")
    if side_by_side:
        _at_once(launch, side_by_side)


def _cold_start(launch: Launch) -> float:
    return harness_start(launch, cold=True)[0]


def harness_start(launch: Launch, *, cold: bool) -> tuple[float, dict[str, float]]:
    """Seconds from before the call to a ready server, everything included, and the phases on the way."""
    begin = time.monotonic()
    with RemoteServer(launch, cold_start=cold, progress=ConsoleProgress()) as server:
        return time.monotonic() - begin, server.phases


def _at_once(launch: Launch, count: int) -> None:
    begin = time.monotonic()
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(count) as pool:
        servers = list(pool.map(RemoteServer.__enter__, [RemoteServer(launch) for _ in range(count)]))
        elapsed = time.monotonic() - begin
        for server in servers:
            stack.push(server)
        memory = ", ".join(f"{_pss_bytes(server.pid) / 2**20:.0f}" for server in servers)
    console.print(f"{count} forked at once: all ready after {elapsed:.1f} s; MiB of each (PSS): {memory}")


def _pss_bytes(root: int) -> int:
    return sum(psutil.Process(pid).memory_full_info().pss for pid in tree_pids(root))


def bare_start(launch: Launch) -> float:
    """Seconds from exec to the first 200 of /health, of the same command without the harness."""
    lease = lease_port()
    with tempfile.TemporaryDirectory(prefix="vh-bare-") as tmp:
        env = {**launch.environ(), "TMPDIR": tmp, SCRIPT_DIR: tmp}
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
