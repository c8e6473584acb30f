"""`vllm-harness cassette replay`: checks a cassette, sends it to a server, or serves it to a client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._cassettes import provenance
from vllm_harness._cassettes.checking import CassetteFinding, about, check
from vllm_harness._cassettes.format import Cassette
from vllm_harness._cassettes.http_server import check_installed
from vllm_harness._cassettes.reading import LoadedCassette, read
from vllm_harness._cassettes.replaying import ReplayedExchange, as_cassette, objections
from vllm_harness._cassettes.replaying import replay as played_on
from vllm_harness._cassettes.serving import CassettePlayer
from vllm_harness._cassettes.serving import serve as serve_from
from vllm_harness._cassettes.writing import check_writable, write
from vllm_harness._errors import UsageError
from vllm_harness._machine import interrupts
from vllm_harness._terminal.notices import show
from vllm_harness._terminal.tables import escaped, plain_console, show_table, tell
from vllm_harness.cli.cassette_differences import show_differences
from vllm_harness.cli.options import ServerOptions
from vllm_harness.cli.served import redactor, served_by

FILE = Annotated[Path, typer.Argument(help="A cassette, or a recording of agentic-api, VCR or HAR.")]


def replay(
    file: FILE,
    model: str | None = None,
    serve: int | None = None,
    timed: bool = False,
    output: Path | None = None,
    *,
    server_options: ServerOptions,
) -> None:
    """Check a cassette, send its requests again, or answer a client from it.

    Without options, every stream and body is checked, as are the rules between
    turns. With --model, the requests are sent again with the ids of the new
    run, a scripted model says what was recorded, and --output writes the new
    answers as a cassette. With --serve, each recorded request is answered once.

    The exit code is 1 if a rule is broken, something differs, a request was
    not recorded, or an exchange was never played; known defects do not count.
    """
    recording = read(file)
    if serve is not None:
        if model is not None or server_options.server_url is not None or output is not None:
            raise UsageError(
                "--serve cannot be combined with a server",
                hint="leave out --model, --server-url and --output",
            )
        _serve(recording.cassette, serve, timed)
        return
    if model is None:
        if server_options.server_url is not None or output is not None:
            raise UsageError("cannot infer the model entry", hint="name it with --model")
        _check(recording)
        return
    if output is not None:
        check_writable(output)
    cassette, entry = recording.cassette, server_options.entry(model)
    played: list[ReplayedExchange] = []
    with served_by(server_options, entry, server_options.lane_of(entry)) as server:
        try:
            for objection in objections(cassette, server):
                show(objection)
            played.extend(played_on(cassette, server))
        finally:
            if output is not None and played:
                again = as_cassette(cassette, played, provenance.of(server))
                write(again, output, redactor(server))
                interrupts.keep(output)
            _show_played(played)
    if any(each.wrong for each in played) or not played:
        raise typer.Exit(1)


def _serve(cassette: Cassette, port: int, timed: bool) -> None:
    """Answers clients until a signal."""
    check_installed()
    player = CassettePlayer(cassette, redactor())
    asyncio.run(
        serve_from(player, port, lambda url: tell(f"{url} answers; Ctrl-C stops it"), tell, timed=timed)
    )
    print(f"exchanges {cassette.count}, never played {len(player.left)}, misses {len(player.misses)}")
    for turn in player.left:
        print(f"turn {turn} was never played")
    if player.left or player.misses:
        raise typer.Exit(1)


def _show_played(played: Sequence[ReplayedExchange]) -> None:
    console = plain_console()
    rows = []
    for each in played:
        status = "" if each.exchange is None else str(each.exchange.response.status)
        known = len({finding.known for finding in each.findings if finding.known})
        wrong = sum(finding.counts for finding in each.findings)
        state = "not played" if each.reason else "differs" if each.differences else "the same"
        rows.append((each.turn, state, status, str(len(each.differences)), str(wrong), str(known)))
    headings = ("turn", "state", "HTTP", "differences", "findings", "known")
    show_table(console, headings, rows, numbers=("HTTP", "differences", "findings", "known"))
    for each in played:
        if each.reason:
            console.print(escaped(f"turn {each.turn}: not played: {each.reason}"))
        for finding in each.findings:
            if finding.counts:
                console.print(escaped(f"turn {each.turn}: {finding}"))
    if differences := [difference for each in played for difference in each.differences]:
        show_differences(differences)


def _check(recording: LoadedCassette) -> None:
    findings = check(recording)
    _show_checked(recording, findings)
    if any(each.finding.counts for each in findings):
        raise typer.Exit(1)


def _show_checked(recording: LoadedCassette, findings: list[CassetteFinding]) -> None:
    console = plain_console()
    cassette = recording.cassette
    title = cassette.title or "a cassette"
    console.print(escaped(f"{recording.path}: {title}, of {about(cassette.recorded)}"))
    rows = []
    for exchange, captured in zip(cassette.exchanges, recording.capture.exchanges, strict=True):
        here = [each.finding for each in findings if each.turn == exchange.turn]
        events = "" if captured.events is None else str(len(captured.events))
        known = {each.known for each in here if each.known}
        wrong = sum(each.counts for each in here)
        request, status = f"{exchange.request.method} {exchange.request.path}", str(exchange.response.status)
        rows.append((exchange.turn, request, status, events, str(wrong), str(len(known))))
    headings = ("turn", "request", "HTTP", "events", "findings", "known")
    show_table(console, headings, rows, numbers=("HTTP", "events", "findings", "known"))
    for each in findings:
        if each.finding.counts:
            turn = f"turn {each.turn}: " if each.turn else ""
            console.print(escaped(f"{recording.path}:{each.line}: {turn}{each.finding}"))
    kinds = Counter(each.finding.known for each in findings if each.finding.known)
    for defect, times in sorted(kinds.items()):
        console.print(escaped(f"known of this vLLM, {times} times: {defect}"))
