"""`vllm-harness replay`: a cassette checked by itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness.cassettes.checking import Checked, about, check
from vllm_harness.cassettes.reading import Read, read
from vllm_harness.terminal.tables import escaped, plain_console, show_table

FILE = Annotated[
    Path, typer.Argument(help="A cassette, a file of agentic-api or of VCR, or an HTTP archive.")
]


def replay(file: FILE) -> None:
    """Check a cassette: every stream and body, what streams add up to, and what holds between turns.

    The exit code is 1 where a rule is broken; what is known of vLLM does not count.
    """
    recording = read(file)
    found = check(recording)
    _show(recording, found)
    if any(each.finding.counts for each in found):
        raise typer.Exit(1)


def _show(recording: Read, found: list[Checked]) -> None:
    console = plain_console()
    cassette = recording.cassette
    console.print(
        escaped(f"{recording.path}: {cassette.title or 'a cassette'}, of {about(cassette.recorded)}")
    )
    rows = []
    for exchange, held in zip(cassette.exchanges, recording.capture.exchanges, strict=True):
        here = [each.finding for each in found if each.turn == exchange.turn]
        events = "" if held.events is None else str(len(held.events))
        known = {each.known for each in here if each.known}
        wrong = sum(each.counts for each in here)
        asked = f"{exchange.request.method} {exchange.request.path}"
        rows.append(
            (exchange.turn, asked, str(exchange.response.status), events, str(wrong), str(len(known)))
        )
    headings = ("turn", "request", "HTTP", "events", "findings", "known")
    show_table(console, headings, rows, numbers=("HTTP", "events", "findings", "known"))
    for each in found:
        if each.finding.counts:
            turn = f"turn {each.turn}: " if each.turn else ""
            console.print(escaped(f"{recording.path}:{each.line}: {turn}{each.finding}"))
    kinds = Counter(each.finding.known for each in found if each.finding.known)
    for defect, times in sorted(kinds.items()):
        console.print(escaped(f"known of this vLLM, {times} times: {defect}"))
