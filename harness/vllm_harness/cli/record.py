"""`vllm-harness cassette record`: records a scenario, or a client that uses a proxy, as a cassette."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._cassettes import provenance
from vllm_harness._cassettes.http_server import check_installed
from vllm_harness._cassettes.proxy import RecordingProxy
from vllm_harness._cassettes.recording import of_conversation
from vllm_harness._cassettes.writing import CassetteWriter, check_writable, write
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import attach
from vllm_harness._exchange.server import VllmServer
from vllm_harness._machine import interrupts
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._scenarios.results import Conversation
from vllm_harness._scenarios.running import run, transports_of
from vllm_harness._scripted.recording import RECORD_ARGS, TokenRecord, recorded
from vllm_harness._terminal.status import shown
from vllm_harness._terminal.tables import escaped, plain_console, tell
from vllm_harness.cli.options import ServerOptions
from vllm_harness.cli.served import redactor, served_for

Tokens = list[list[list[int]] | None]


def record(
    output: Path,
    scenario: Annotated[
        str | None, typer.Argument(help="A scenario file, or the name of one of the package's stories.")
    ] = None,
    model: str | None = None,
    proxy: int | None = None,
    upstream: str | None = None,
    transport: str = "responses",
    no_stream: bool = False,
    tokens: bool = False,
    *,
    server_options: ServerOptions,
) -> None:
    """Record a scenario, or with --proxy another client, as a cassette (.yaml or .yaml.gz).

    The client sends its requests to the port of --proxy, which passes them on
    to --upstream. Secrets are redacted. The exit code is 1 if something in the
    scenario was not as expected; the cassette is written all the same.
    """
    check_writable(output)
    if proxy is not None and upstream is not None and scenario is None:
        _record_client(proxy, upstream, output)
        return
    if scenario is None or model is None or proxy is not None or upstream is not None:
        raise UsageError(
            "nothing to record",
            hint="give a scenario and --model, or --proxy PORT and --upstream URL",
        )
    read, over = read_scenario(find_scenario(scenario)), transports_of([transport], (not no_stream,))
    if tokens and server_options.server_url is not None:
        raise UsageError("--tokens needs a server that the harness starts", hint="leave out --server-url")
    if read.in_background:
        raise UsageError(
            "a cassette cannot contain a background response, which has several answers",
            hint="leave out `background`, or record a client with --proxy",
        )
    flags = RECORD_ARGS if tokens else ()
    with served_for(read, server_options, server_options.entry(model), flags) as (server, mcp):
        attempts = server.entry.limits.live_attempts
        kept, generated = list[Conversation](), list[TokenRecord]()
        try:
            with (
                recorded(server.endpoint) if tokens else nullcontext(generated) as generated,
                shown() as progress,
            ):
                run(read, server, over, attempts=attempts, mcp=mcp, kept=kept, progress=progress)
        finally:
            if kept and kept[0].turns:
                _keep(read, scenario, kept[0], server, [each.tokens for each in generated], output)
    if kept[0].wrong or not any(turn.exchange for turn in kept[0].turns):
        raise typer.Exit(1)


def _record_client(port: int, upstream: str, output: Path) -> None:
    """Records the requests of a client until a signal."""
    check_installed()
    endpoint = attach(upstream)
    about = provenance.of_endpoint(endpoint).model_copy(update={"by": "proxy"})
    writer = CassetteWriter(output, "", about, redactor())
    try:
        proxy = RecordingProxy(endpoint, writer, tell)
        asyncio.run(proxy.run(port, lambda url: tell(f"{url} passes on to {upstream}; Ctrl-C stops it")))
    finally:
        writer.end()
    print(f"{output}: {writer.count} exchanges")


def _keep(
    scenario: Scenario,
    name: str,
    conversation: Conversation,
    server: VllmServer,
    generated: Tokens,
    output: Path,
) -> None:
    answered = sum(turn.exchange is not None for turn in conversation.turns)
    about = provenance.of(server).model_copy(update={"scenario": Path(name).stem})
    cassette = of_conversation(scenario, conversation, about, generated[-answered:] if answered else [])
    write(cassette, output, redactor(server))
    interrupts.keep(output)
    console = plain_console()
    with_tokens = sum(bool(exchange.tokens) for exchange in cassette.exchanges)
    of_tokens = f", with the tokens of {with_tokens}" if generated else ""
    console.print(f"{output}: {len(cassette.exchanges)} of {len(scenario.turns)} turns{of_tokens}")
    for turn in conversation.turns:
        if turn.reason:
            console.print(f"turn {turn.turn}: cancelled: {turn.reason}")
    for problem in conversation.problems():
        console.print(escaped(problem))
