"""`vllm-harness models`: the model entries, and whether a vLLM knows what they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vllm_harness.configuration.model_entries import ModelEntry, load_registry
from vllm_harness.environments import resolve
from vllm_harness.server.model_check import names_of, unknown_names
from vllm_harness.terminal.status import shown
from vllm_harness.terminal.tables import plain_console, show_table

app = typer.Typer(help="List the model entries of models.yaml, and check them against a vLLM.")

_File = Annotated[Path | None, typer.Option("--models-file", help="another models.yaml")]


@app.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    models_file: _File = None,
) -> None:
    """List the model entries."""
    if context.invoked_subcommand:
        return
    entries = list(load_registry(models_file))
    if as_json:
        print(json.dumps([_plain(entry) for entry in entries], indent=2))
        return
    headings = ("name", "lanes", "hardware", "parsers", "hub id", "capabilities")
    show_table(plain_console(), headings, [_row(entry) for entry in entries])


@app.command()
def check(
    vllm: Annotated[
        str | None, typer.Option(help="`0.32.0`, `0.33.0@0.32.0`, `tree:PATH@0.32.0` or `installed[:PYTHON]`")
    ] = None,
    frontend: Annotated[Literal["python", "rust"], typer.Option(help="whose parsers")] = "python",
    models_file: _File = None,
) -> None:
    """Check every entry against a vLLM. Exit code 0: it knows all; 1: something is unknown; 2: no answer."""
    entries = list(load_registry(models_file))
    with shown() as progress:
        environment = resolve(vllm)
        progress(f"asking {environment.describe()}")
        unknown = unknown_names(entries, names_of(environment, frontend), frontend)
    if not unknown:
        print(f"{environment.describe()} knows all that {len(entries)} entries name")
        return
    rows = [(each.model, each.key, each.name, ", ".join(each.near)) for each in unknown]
    show_table(plain_console(), ("model", "key", "unknown", "nearest"), rows)
    print(f"{environment.describe()}: {len(unknown)} unknown names")
    raise typer.Exit(1)


def _row(entry: ModelEntry) -> tuple[str, ...]:
    hub = f"{entry.hub.id} (gated)" if entry.hub.gated else entry.hub.id
    parsers = " / ".join(filter(None, (entry.tool_call_parser, entry.reasoning_parser)))
    lanes, capabilities = ", ".join(entry.lanes), ", ".join(sorted(entry.capabilities))
    return entry.name, lanes, _hardware(entry), parsers, hub, capabilities


def _hardware(entry: ModelEntry) -> str:
    needs = {
        "cuda": f"{entry.hardware.gpus} GPU x {entry.hardware.gpu_memory_gib:g} GiB",
        "cpu": f"CPU {entry.hardware.cpu_memory_gib:g} GiB",
    }
    return " or ".join(needs[device] for device in entry.hardware.devices)


def _plain(entry: ModelEntry) -> dict[str, Any]:
    plain: dict[str, Any] = entry.model_dump(mode="json")
    return plain | {"capabilities": sorted(entry.capabilities)}
