"""`vllm-harness load`: many conversations at once, every stream validated while it is timed."""

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
from vllm_harness._protocol.core.events import Json
from vllm_harness._runs.beginning import new_header
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import End, Kind
from vllm_harness._scenarios.conversation import Served
from vllm_harness._scenarios.format import MissingToolCall, Scenario
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._scenarios.running import transports_of
from vllm_harness._server.records import run_folder
from vllm_harness._server.remote import RemoteServer
from vllm_harness._server.target_record import target_record
from vllm_harness._terminal.pace import minutes
from vllm_harness._terminal.status import Progress, shown
from vllm_harness._terminal.tables import escaped, plain_console, show_table
from vllm_harness.cli.executor import BUNDLE, RAY
from vllm_harness.cli.options import AS_JSON, MODEL, SEED, ServerOptions, with_options
from vllm_harness.cli.served import served_by
from vllm_harness.extras.cluster.options import checked_bundles, cluster_of
from vllm_harness.extras.cluster.places import Places

if TYPE_CHECKING:
    from rich.console import Console

    from vllm_harness.extras.load.clients import Clients
    from vllm_harness.extras.load.driving import Load
    from vllm_harness.extras.load.plan import Plan

API_KEY = "VLLM_API_KEY"
_SHOWN = 20
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HEADINGS = (
    "transport",
    "requests",
    "passed",
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
_OF_CLIENTS = ("client on", "conversations", "CPU")


@with_options
def load(
    scenario: Annotated[str, typer.Argument(help="A scenario file, or the name of a story.")],
    model: MODEL,
    concurrency: Annotated[
        int | None, typer.Option(help="Conversations at once; by default 1, with --rate no limit.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(help="How many requests, rounded up to whole conversations.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="Seconds in which conversations begin; those begun are ended.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Conversations that begin a second, at drawn intervals.")
    ] = None,
    cancel: Annotated[float, typer.Option(help="Share of the streams that the client leaves.")] = 0.0,
    transport: Annotated[
        list[str] | None,
        typer.Option(help="A transport: responses, responses-history, chat, messages; may be repeated."),
    ] = None,
    missing_tool_call: Annotated[
        MissingToolCall | None,
        typer.Option(help="What becomes of a conversation whose expected call is missing."),
    ] = None,
    seed: SEED = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The run's folder; by default a new one.")
    ] = None,
    ray: RAY = "",
    bundle: BUNDLE = None,
    clients: Annotated[
        int | None, typer.Option(help="With --ray: processes that hold them; by default one a node.", min=1)
    ] = None,
    *,
    on: ServerOptions,
    as_json: AS_JSON = False,
) -> None:
    """Hold a scenario many times at once, and check every stream while it is timed.

    The figures are kept in the run's folder with every turn, also where
    Ctrl-C or SIGTERM ends the load. The exit code is 1 where a request had no
    answer, something is not as expected, a rule of an API is broken, or the
    server still runs a request after the end.
    """
    held = read_scenario(find_scenario(scenario))
    plan = _plan(transport or (), concurrency, requests, duration, rate, cancel, seed, missing_tool_call)
    entry, folder = on.entry(model), output or run_folder()
    lane = on.lane_of(entry, scriptable=held.scriptable)
    with (
        _clients(ray, clients, folder, bundle) as (holding, reach),
        served_by(on, entry, lane, **reach) as server,
    ):
        done = _run(held, plan, server, folder, holding)
    _report(done, folder, as_json)


@contextmanager
def _clients(
    ray: str, number: int | None, folder: Path, bundles: Sequence[Path] | None = None
) -> Iterator[tuple[Clients, dict[str, Any]]]:
    """Who holds the conversations, and how a server that is started is reached by them."""
    from vllm_harness.extras.load.clients import Here
    from vllm_harness.extras.load.nodes import OnNodes

    if not ray:
        if number is not None:
            raise UsageError("--clients needs a cluster", hint="add --ray, or leave --clients out")
        yield Here(), {}
        return
    checked = checked_bundles(bundles)
    with cluster_of(ray, Places(folder), extra="load", bundles=checked) as cluster:
        # other machines than the nodes may reach it as well, so that it wants a key of its own
        key = os.environ.get(API_KEY) or secrets.token_urlsafe(24)
        yield OnNodes(cluster, number), {"host": cluster.address_here, "env": {API_KEY: key}}


def _plan(
    transports: Sequence[str],
    concurrency: int | None,
    requests: int | None,
    duration: float | None,
    rate: float | None,
    cancel: float,
    seed: int,
    missing: MissingToolCall | None,
) -> Plan:
    try:
        import vllm_harness.extras.load.driving  # noqa: F401
        from vllm_harness.extras.load.plan import Plan
    except ImportError as error:
        raise UsageError(
            f"load needs the package {error.name}", hint="pip install 'vllm-harness[load]'"
        ) from error
    return Plan(
        transports_of(transports, (True,)), concurrency, requests, duration, rate, cancel, seed, missing
    )


def _run(scenario: Scenario, plan: Plan, server: VllmServer, folder: Path, clients: Clients) -> Load:
    from vllm_harness.extras.load.driving import Load
    from vllm_harness.extras.load.keeping import Keeper

    served = Served.by(server)
    header = new_header(Kind.LOAD, f"{scenario.title or 'load'}, {server.model}", plan.seed)
    hidden = secret_values(os.environ)
    if server.endpoint.api_key != NO_KEY:
        hidden.append(server.endpoint.api_key)
    with RunWriter.begin(folder, header, hidden) as writer:
        writer.write(target_record(server, server.model, writer))
        keeper = Keeper(writer, server.model, header.started)
        pid = server.pid if isinstance(server, RemoteServer) else None
        running = Load(scenario, served, plan, keeper, pid, clients=clients)
        try:
            asyncio.run(_until_stopped(running))
        finally:
            keeper.figures(list(running.by_transport.items()), running.samples)
            keeper.summary(running.as_json())
        writer.write(End(at=time.time(), exit_code=_exit_code(running), stopped=running.stopped))
    return running


async def _until_stopped(running: Load) -> None:
    """Runs the load; the first signal ends it in order, a second one at once."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def ended_by(number: signal.Signals) -> None:
        running.stopped = number.name
        loop.remove_signal_handler(number)
        signal.signal(number, before[number])
        stop.set()

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, ended_by, number)
    try:
        with _told(running):
            await running.run(stop)
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


@contextmanager
def _told(running: Load) -> Iterator[None]:
    """Shows how far a load is while it runs."""
    with shown() as progress:
        task = asyncio.create_task(_tell(running, progress, 0.5 if sys.stderr.isatty() else 10.0))
        try:
            yield
        finally:
            task.cancel()


async def _tell(running: Load, progress: Progress, every_s: float) -> None:
    turns = len(running.scenario.turns)
    most = running.plan.conversations(turns)
    while True:
        total, seconds = running.total, running.elapsed_s
        of = f" of about {most * turns}" if most else ""
        first = total.first.at(50.0)
        words = "" if first is None else f", first words p50 {first * 1e3:.0f} ms"
        problems = sum(map(Counter.total, (total.errors, total.mismatches, total.findings)))
        progress(
            f"{minutes(seconds)}: {total.requests}{of} requests, "
            f"{total.requests / seconds if seconds else 0:.1f} a second, "
            f"{running.at_once} conversations at once{words}, {problems} problems"
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
    took = f"; the client took {cpu:.2f} ms of CPU a request" if cpu else ""
    console.print(f"{done.begun} conversations in {done.seconds:.1f} s{took}")
    total = done.total
    for what, number in (
        ("streams that the client left", total.left),
        ("turns left out", total.left_out),
        ("answers of another conversation", total.mixed),
        ("conversations cut off", done.cut_off),
    ):
        if number:
            console.print(f"{what}: {number}")
    for kind in ("errors", "mismatches", "findings", "known"):
        for name, count in list(getattr(total, kind).most_common(_SHOWN)):
            console.print(f"{kind}: {count} x {escaped(name)}")
    for whose, change in figures["drift"].items():
        (memory, later), (handles, handles_later) = change["memory_mib"], change["handles"]
        console.print(
            f"{whose}: memory {memory:.0f} -> {later:.0f} MiB, handles {handles:.0f} -> {handles_later:.0f}"
        )
    _show_clients(console, figures.get("clients", ()))
    if figures.get("lost"):
        lost, again = figures["lost"], figures["held_again"]
        console.print(
            f"conversations lost with a node: {lost}, of which {again} were held again on another one"
        )
    if done.running is not None:
        console.print(f"requests that the server still runs: {done.running}")
    if done.stopped:
        console.print(f"ended by {done.stopped}: the figures are of what came until then")


def _show_clients(console: Console, clients: Sequence[Json]) -> None:
    rows = [
        (", then ".join(each["nodes"]), str(each["conversations"]), f"{each['cpu_s']:.1f} s")
        for each in clients
    ]
    if rows:
        show_table(console, _OF_CLIENTS, rows, numbers=_OF_CLIENTS[1:])
