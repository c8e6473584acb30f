"""`vllm-harness scenario`: checks scenario files, and runs them on a server over every transport."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._exchange.server import VllmServer
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import Kind
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.mismatches import contradictions
from vllm_harness._scenarios.reading import find_scenario, read_scenario, schema, stories_of_package
from vllm_harness._scenarios.results import Conversation
from vllm_harness._scenarios.run_records import records_of
from vllm_harness._scenarios.running import BOTH, run, transports_of
from vllm_harness._scenarios.transports import Transport
from vllm_harness._server.records import run_folder
from vllm_harness._server.target_record import target_record
from vllm_harness._terminal.status import shown
from vllm_harness._terminal.tables import escaped, plain_console, show_table
from vllm_harness.cli.options import ServerOptions
from vllm_harness.cli.run_folder import kept_run
from vllm_harness.cli.served import Mcp, served_for

app = typer.Typer(
    no_args_is_help=True, help="Check scenarios (conversations in YAML), and run them over every transport."
)
FILE = Annotated[str, typer.Argument(help="A scenario file, or the name of one of the package's stories.")]


class Streaming(StrEnum):
    """Whether answers are streamed."""

    BOTH = "both"
    YES = "yes"
    NO = "no"


_DELIVERIES = {Streaming.BOTH: BOTH, Streaming.YES: (True,), Streaming.NO: (False,)}


@app.command()
def check(file: FILE) -> None:
    """Check a scenario file, and report every problem with its line (exit code 2).

    The exit code is 1 if a scripted model does not say what its turn expects,
    so that the turn fails on every server.
    """
    path = find_scenario(file)
    scenario = read_scenario(path)
    contradicted = list(_contradictions(path, scenario))
    for line in contradicted:
        print(line)
    if contradicted:
        raise typer.Exit(1)
    lanes = "scripted and live" if scenario.scriptable else "live only, since a turn has no `say`"
    print(f"{path} is valid: turns {len(scenario.turns)}, tools {len(scenario.every_tool)}, lanes {lanes}")


def _contradictions(path: Path, scenario: Scenario) -> Iterator[str]:
    document = read_yaml(path)
    for number, turn in enumerate(scenario.turns):
        for each in contradictions(scenario, turn):
            line = document.line(("turns", number, "say"))
            yield f"{path}:{line}: turns.{number}.say: does not meet the turn's expectation: {each}"


@app.command("schema")
def schema_() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    print(json.dumps(schema(), indent=2))


@app.command()
def stories() -> None:
    """List the package's own scenarios, to run or to copy."""
    rows = [(path.stem, read_scenario(path).title, str(path)) for path in stories_of_package()]
    show_table(plain_console(), ("name", "title", "file"), rows)


@app.command("run")
def run_(
    file: FILE,
    model: str,
    transport: list[str] | None = None,
    stream: Streaming = Streaming.BOTH,
    *,
    server_options: ServerOptions,
    json_: bool = False,
) -> None:
    """Run a scenario on a server over every transport, with and without streaming.

    The exit code is 1 if something is not as expected, a rule of an API is
    broken, a prompt lacks something, two transports disagree, or no turn was
    answered; known defects of vLLM do not count.
    """
    scenario = read_scenario(find_scenario(file))
    transports = transports_of(transport or (), _DELIVERIES[stream])
    entry = server_options.entry(model)
    with kept_run(Kind.SCENARIO, run_folder(), f"{scenario.title} on {entry.name}") as writer:
        with served_for(scenario, server_options, entry) as (server, mcp):
            conversations = _run(scenario, server, transports, writer, mcp)
        if json_:
            print(json.dumps([each.as_json() for each in conversations], indent=2, ensure_ascii=False))
        else:
            _show(scenario, conversations)
        plain_console(stderr=True).print(f"run folder: {writer.folder}")
        nothing_came = not any(turn.exchange for each in conversations for turn in each.turns)
        if nothing_came or any(each.wrong for each in conversations):
            raise typer.Exit(1)


def _run(
    scenario: Scenario,
    server: VllmServer,
    transports: Sequence[Transport],
    writer: RunWriter,
    mcp: Mcp | None,
) -> list[Conversation]:
    target, at = target_record(server, f"{server.lane}-{server.entry.name}", writer), time.time()
    writer.write(target)
    attempts = server.entry.limits.live_attempts
    kept: list[Conversation] = []
    try:
        with shown() as progress:
            return run(scenario, server, transports, attempts=attempts, mcp=mcp, kept=kept, progress=progress)
    finally:
        labels = {each.transport.label for each in kept}
        for conversation in kept:
            for record in records_of(conversation, target.id, at, labels):
                writer.write(record)


def _show(scenario: Scenario, conversations: Sequence[Conversation]) -> None:
    console = plain_console()
    headings = ("transport", *(turn.name for turn in scenario.turns), "attempts", "known")
    show_table(console, headings, [_row(each) for each in conversations])
    for conversation in conversations:
        for turn in conversation.turns:
            if turn.reason:
                console.print(f"{conversation.transport.label}, turn {turn.turn}: cancelled: {turn.reason}")
        for problem in conversation.problems():
            console.print(escaped(problem))


def _row(conversation: Conversation) -> tuple[str, ...]:
    states = (turn.state for turn in conversation.turns)
    return (
        conversation.transport.label,
        *states,
        str(conversation.attempts),
        str(len(conversation.known) or ""),
    )
