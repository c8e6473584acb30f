"""What a token costs, from a forked server and from a cold one (`scripts/bench-tokens`)."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
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

QUIET_S = 2.0
"""Until a cold server has stopped spinning: vLLM's busy loop lasts for a second after the last token."""

console = Console(highlight=False)


def main(
    model: Annotated[str, typer.Argument(help="Model entry.")] = "qwen3",
    tokens: Annotated[int, typer.Option(help="Words of each answer.", min=10)] = 200,
    turns: Annotated[int, typer.Option(help="How many turns, after one warm-up.", min=1)] = 5,
    vllm: Annotated[str | None, option("vllm")] = None,
) -> None:
    """Times answers of a forked and of a cold server in turn, and prints the median ratio."""
    launch = plan_launch(
        load_models().get(model), environment(vllm, None, None), lane="scripted", progress=console.print
    )
    table = Table("turn", "forked, ms a token", "its CPU", "cold, ms a token", "its CPU", "forked / cold")
    ratios = []
    with ExitStack() as stack:
        servers = [
            RemoteServer(launch, cold_start=cold, progress=ConsoleProgress()) for cold in (False, True)
        ]
        for server in servers:
            stack.enter_context(server)
            server.script("word " * tokens, times=None)
        for turn in range(turns + 1):
            forked, cold = map(_answer, servers)
            if turn == 0:
                continue
            ratios.append(forked[0] / cold[0])
            figures = [f"{milliseconds:.2f}" for milliseconds in (*forked, *cold)]
            table.add_row(str(turn), *figures, f"{ratios[-1]:.2f}")
    console.print(table)
    console.print(f"median forked / cold: {statistics.median(ratios):.2f}")


def _answer(server: RemoteServer) -> tuple[float, float]:
    """Milliseconds a token, and those of all the server's processes' CPU time."""
    client = server.client()
    time.sleep(QUIET_S)
    cpu, begin = _cpu_s(server), time.monotonic()
    completion = client.chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": "Go on."}]
    )
    elapsed = time.monotonic() - begin
    assert completion.usage is not None
    count = completion.usage.completion_tokens
    return elapsed / count * 1000, (_cpu_s(server) - cpu) / count * 1000


def _cpu_s(server: RemoteServer) -> float:
    assert server.pid is not None
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in tree_pids(server.pid))


if __name__ == "__main__":
    typer.run(main)
