"""`vllm-harness load`: holds many conversations at once, and validates every stream while it is timed."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import NO_KEY
from vllm_harness._exchange.server import VllmServer
from vllm_harness._files.redaction import secret_values
from vllm_harness._machine import interrupts
from vllm_harness._protocol.core.events import Json
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.header import new_header
from vllm_harness._runs.records import End, Kind
from vllm_harness._scenarios.format import MissingToolCall, Scenario
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._scenarios.running import transports_of
from vllm_harness._server.records import run_folder
from vllm_harness._server.remote import RemoteServer
from vllm_harness._server.target_record import target_record
from vllm_harness._terminal.pace import minutes
from vllm_harness._terminal.status import Progress, shown
from vllm_harness._terminal.tables import escaped, plain_console, show_table
from vllm_harness.cli.options import ServerOptions
from vllm_harness.cli.served import served_by
from vllm_harness.extras.cluster.options import checked_bundles, cluster_of
from vllm_harness.extras.cluster.places import Places

if TYPE_CHECKING:
    from rich.console import Console

    from vllm_harness.extras.load.client import Clients
    from vllm_harness.extras.load.driver import Load
    from vllm_harness.extras.load.plan import Plan

API_KEY = "VLLM_API_KEY"
_SHOWN = 20
_HEADINGS = (
    "transport",
    "requests",
    "passed",
    "known",
    "a second",
    "tokens/s",
    "first p50 ms",
    "p99",
    "gap p50 ms",
    "p99 ",
    "turn p50 ms",
    "p99  ",
    "calls/missing/unparsable",
)
_CLIENT_HEADINGS = ("client on", "conversations", "CPU")


def load(
    scenario: Annotated[str, typer.Argument(help="A scenario file, or the name of a story.")],
    model: str,
    concurrency: int | None = None,
    requests: int | None = None,
    duration: float | None = None,
    rate: float | None = None,
    cancel: float = 0.0,
    transport: list[str] | None = None,
    missing_tool_call: MissingToolCall | None = None,
    seed: int = 0,
    output: Path | None = None,
    ray: str = "",
    bundle: list[Path] | None = None,
    clients: int | None = None,
    *,
    server_options: ServerOptions,
    json_: bool = False,
) -> None:
    """Run a scenario many times at once, and check every stream while it is timed.

    --concurrency defaults to 1, or to no limit with --rate. The run folder has
    the figures and every turn, even if Ctrl-C or SIGTERM ends the load. The
    exit code is 1 if a request was not answered, something is not as expected,
    a rule of an API is broken, or a request still runs after the end.
    """
    conversation = read_scenario(find_scenario(scenario))
    _check_packages()
    from vllm_harness.extras.load.plan import Plan

    transports = transports_of(transport or (), (True,))
    plan = Plan(transports, concurrency, requests, duration, rate, cancel, seed, missing_tool_call)
    entry, folder = server_options.entry(model), output or run_folder()
    lane = server_options.lane_of(entry, scriptable=conversation.scriptable)
    with (
        _clients(ray, clients, folder, bundle) as (load_clients, reach),
        served_by(server_options, entry, lane, **reach) as server,
    ):
        done = _run(conversation, plan, server, folder, load_clients)
    _report(done, folder, json_)


@contextmanager
def _clients(
    ray: str, number: int | None, folder: Path, bundles: Sequence[Path] | None = None
) -> Iterator[tuple[Clients, dict[str, Any]]]:
    """Yields the clients, and the options with which a new server can be reached from them."""
    from vllm_harness.extras.load.client import LocalClient
    from vllm_harness.extras.load.nodes import ClusterClients

    if not ray:
        yield LocalClient(), {}
        return
    checked = checked_bundles(bundles)
    with cluster_of(ray, Places(folder), extra="load", bundles=checked) as cluster:
        # machines other than the nodes may reach the server as well, so it requires a key
        key = os.environ.get(API_KEY) or secrets.token_urlsafe(24)
        yield ClusterClients(cluster, number), {"host": cluster.address_here, "env": {API_KEY: key}}


def _check_packages() -> None:
    try:
        import vllm_harness.extras.load.driver  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"load needs the package {error.name}", hint="pip install 'vllm-harness[load]'"
        ) from error


def _run(scenario: Scenario, plan: Plan, server: VllmServer, folder: Path, clients: Clients) -> Load:
    from vllm_harness.extras.load.driver import Load
    from vllm_harness.extras.load.recorder import LoadRecorder

    header = new_header(Kind.LOAD, f"{scenario.title or 'load'}, {server.model}", plan.seed)
    hidden = secret_values(os.environ)
    if server.endpoint.api_key != NO_KEY:
        hidden.append(server.endpoint.api_key)
    with RunWriter.begin(folder, header, hidden) as writer:
        writer.write(target_record(server, server.model, writer))
        recorder = LoadRecorder(writer, server.model, header.started)
        pid = server.pid if isinstance(server, RemoteServer) else None
        running = Load(scenario, server, plan, recorder, pid, clients=clients)
        try:
            asyncio.run(_until_stopped(running))
        finally:
            recorder.record_figures(list(running.by_transport.items()), running.samples)
            recorder.write_summary(running.as_json())
        writer.write(End(at=time.time(), exit_code=_exit_code(running), stopped=running.stopped))
    return running


async def _until_stopped(running: Load) -> None:
    """Runs the load; the first signal ends it gracefully, a second signal immediately."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop_by(name: str) -> None:
        running.stopped = name
        loop.call_soon_threadsafe(stop.set)

    with interrupts.stopping(stop_by), _shown_progress(running):
        await running.run(stop)


@contextmanager
def _shown_progress(running: Load) -> Iterator[None]:
    """Shows the progress of a load while the block runs."""
    with shown() as progress:
        task = asyncio.create_task(_show_progress(running, progress, 0.5 if sys.stderr.isatty() else 10.0))
        try:
            yield
        finally:
            task.cancel()


async def _show_progress(running: Load, progress: Progress, every_s: float) -> None:
    turns = len(running.scenario.turns)
    conversations = running.plan.conversations(turns)
    while True:
        total, seconds = running.total, running.elapsed_s
        of = f" of about {conversations * turns}" if conversations else ""
        first_s = total.first.at(50.0)
        first = "" if first_s is None else f", first token p50 {first_s * 1e3:.0f} ms"
        problems = sum(map(Counter.total, (total.errors, total.mismatches, total.findings)))
        progress(
            f"{minutes(seconds)}: {total.requests}{of} requests, "
            f"{total.requests / seconds if seconds else 0:.1f} a second, "
            f"{running.at_once} conversations at once{first}, {problems} problems"
        )
        await asyncio.sleep(every_s)


def _report(done: Load, folder: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps(done.as_json(), indent=2, ensure_ascii=False))
    else:
        _show(done)
    print(f"records {folder}", file=sys.stderr)
    for error in done.clients.errors:
        raise error
    if code := _exit_code(done):
        raise typer.Exit(code)


def _exit_code(done: Load) -> int:
    if done.stopped:
        return 128 + signal.Signals[done.stopped]
    return int(done.wrong or bool(done.clients.errors))


def _show(done: Load) -> None:
    from vllm_harness.extras.load.tally import summary_rows

    console, figures = plain_console(), done.as_json()
    tallies = list(done.by_transport.items())
    rows = summary_rows([*tallies, ("all", done.total)] if len(tallies) > 1 else tallies, done.seconds)
    show_table(console, _HEADINGS, rows, numbers=_HEADINGS[1:])
    cpu = figures["client_cpu_ms_a_request"]
    cpu_time = f"; the client took {cpu:.2f} ms of CPU per request" if cpu else ""
    console.print(f"{done.started} conversations in {done.seconds:.1f} s{cpu_time}")
    total = done.total
    for what, number in (
        ("streams that the client left", total.left),
        ("turns not sent", total.left_out),
        ("answers to another conversation", total.mixed),
        ("conversations cancelled", done.cut_off),
        ("requests sent again on a new connection", done.sent_again),
    ):
        if number:
            console.print(f"{what}: {number}")
    for kind in ("errors", "mismatches", "findings", "known"):
        for name, count in list(getattr(total, kind).most_common(_SHOWN)):
            console.print(f"{kind}: {count} x {escaped(name)}")
    for process, change in figures["drift"].items():
        (memory, later), (handles, handles_later) = change["memory_mib"], change["handles"]
        console.print(
            f"{process}: memory {memory:.0f} -> {later:.0f} MiB, handles {handles:.0f} -> {handles_later:.0f}"
        )
    _show_clients(console, figures.get("clients", ()))
    if figures.get("lost"):
        lost, again = figures["lost"], figures["held_again"]
        console.print(
            f"conversations lost with a node: {lost}, of which {again} were held again on another node"
        )
    if done.running is not None:
        console.print(f"requests that the server still runs: {done.running}")
    if done.stopped:
        console.print(f"ended by {done.stopped}: the figures cover the time until then")


def _show_clients(console: Console, clients: Sequence[Json]) -> None:
    rows = [
        (", then ".join(client["nodes"]), str(client["conversations"]), f"{client['cpu_s']:.1f} s")
        for client in clients
    ]
    if rows:
        show_table(console, _CLIENT_HEADINGS, rows, numbers=_CLIENT_HEADINGS[1:])
