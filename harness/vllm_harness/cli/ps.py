"""`vllm-harness ps` and `stop`: the servers and fork servers that run now."""

from __future__ import annotations

import os
import signal
from typing import Annotated

import typer

from vllm_harness.errors import UsageError
from vllm_harness.server import kept
from vllm_harness.server.errors import StopFailed
from vllm_harness.server.fork_server import templates
from vllm_harness.server.records import running, sweep
from vllm_harness.terminal.tables import plain_console, show_table

console = plain_console()


def ps() -> None:
    """List servers (kept, or in use by a run) and fork servers."""
    sweep()
    rows = []
    for record in running():
        state = "kept" if record.kept else "in use"
        url = f"http://127.0.0.1:{record.port}/v1"
        rows.append((record.name, record.lane, state, str(record.pid), url, record.environment, record.log))
    for template in templates():
        rows.append(("fork server", "-", "-", str(template.pid), "-", template.environment, "-"))
    if rows:
        show_table(console, ("name", "lane", "state", "pid", "url", "environment", "log"), rows, {"pid"})
    else:
        console.print("nothing runs")


def stop(
    name: Annotated[str | None, typer.Argument(help="Name of a kept server; all of them by default.")] = None,
) -> None:
    """End kept servers, and with no name the fork servers as well."""
    ours = [record for record in running() if record.kept and name in (None, record.name)]
    if name is not None and not ours:
        raise UsageError(f"no kept server is named {name!r}", hint="`vllm-harness ps` lists them")
    for record in ours:
        if left := kept.end(record):
            raise StopFailed(f"{record.name}: processes {left} survived KILL")
        console.print(f"stopped {record.name} ({record.lane}, pid {record.pid})")
    for template in templates() if name is None else []:
        os.kill(template.pid, signal.SIGTERM)
        console.print(f"stopped the fork server of {template.environment} (pid {template.pid})")
