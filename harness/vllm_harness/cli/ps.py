"""`vllm-harness serve ps` and `serve stop`: list and stop running servers and fork servers."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_harness._errors import UsageError
from vllm_harness._server import fork_server, reusable
from vllm_harness._server.errors import StopFailed
from vllm_harness._server.records import running, sweep
from vllm_harness._terminal.tables import plain_console, show_table

console = plain_console()


def ps() -> None:
    """List the running servers and fork servers."""
    sweep()
    rows = []
    for record in running():
        state = "kept" if record.kept else "in use"
        url = record.endpoint.url_for("v1")
        rows.append((record.name, record.lane, state, str(record.pid), url, record.environment, record.log))
    for template in fork_server.templates():
        rows.append(("fork server", "-", "-", str(template.pid), "-", template.environment, "-"))
    if rows:
        headings = ("name", "lane", "state", "pid", "url", "environment", "log")
        show_table(console, headings, rows, {"pid"}, whole=True)
    else:
        console.print("no server is running")


def stop(
    name: Annotated[
        str | None, typer.Argument(help="The name of a kept server; by default all of them.")
    ] = None,
) -> None:
    """Stop the kept servers, and without a name the fork servers as well."""
    records = [record for record in running() if record.kept and name in (None, record.name)]
    if name is not None and not records:
        raise UsageError(f"no kept server is named {name!r}", hint="`vllm-harness serve ps` lists them")
    for record in records:
        if left := reusable.end_server(record):
            raise StopFailed(
                f"{record.name}: processes {left} survived SIGKILL",
                hint="`ps -o pid,stat,wchan,cmd` shows what they wait for",
            )
        console.print(f"stopped {record.name} ({record.lane}, pid {record.pid})")
    for template in fork_server.templates() if name is None else []:
        fork_server.end(template)
        console.print(f"stopped the fork server of {template.environment} (pid {template.pid})")
