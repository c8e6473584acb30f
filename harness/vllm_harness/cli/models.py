"""`vllm-harness models`: lists model entries, and checks whether a vLLM version knows the names in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from vllm_harness._configuration.model_entries import Frontend, ModelEntry, load_models
from vllm_harness._environments import resolve
from vllm_harness._server.model_check import Unknown, names_of, stand_in_problems, unknown_names
from vllm_harness._terminal.status import shown
from vllm_harness._terminal.tables import plain_console, show_table

app = typer.Typer(help="List the model entries and the dialects; check the entries with a vLLM version.")


@app.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    json_: bool = False,
    models_file: Path | None = None,
) -> None:
    """List the model entries."""
    if context.invoked_subcommand:
        return
    entries = list(load_models(models_file))
    if json_:
        print(json.dumps([_plain(entry) for entry in entries], indent=2))
        return
    headings = ("name", "lanes", "hardware", "parsers", "hub id", "capabilities")
    show_table(plain_console(), headings, [_row(entry) for entry in entries])


@app.command()
def check(
    vllm: str | None = None,
    frontend: Frontend = "python",
    models_file: Path | None = None,
) -> None:
    """Check whether vLLM knows every name in the entries, and whether their stand-ins can be made.

    The exit code is 1 if a name is unknown or a stand-in cannot be made, and
    2 if the vLLM version does not exist. Missing assets are fetched.
    """
    entries = list(load_models(models_file))
    with shown() as progress:
        environment = resolve(vllm)
        progress(f"reading the names that {environment.describe()} knows")
        unknown = unknown_names(entries, names_of(environment, frontend), frontend)
        problems = stand_in_problems(entries, progress)
    _show_unknown(environment.describe(), unknown, len(entries))
    for name, error in problems:
        print(f"the stand-in of {name} cannot be made: {error}")
    if unknown or problems:
        raise typer.Exit(1)
    print(f"the stand-ins of {sum(entry.stand_in is not None for entry in entries)} entries can be made")


def _show_unknown(vllm: str, unknown: list[Unknown], entries: int) -> None:
    if not unknown:
        print(f"{vllm} knows every name of the {entries} entries")
        return
    rows = [(each.model, each.key, each.name, ", ".join(each.near)) for each in unknown]
    show_table(plain_console(), ("model", "key", "unknown", "nearest"), rows)
    print(f"{vllm}: {len(unknown)} unknown names")


def _row(entry: ModelEntry) -> tuple[str, ...]:
    hub = f"{entry.hub.id} (gated)" if entry.hub.gated else entry.hub.id
    parsers = " / ".join(filter(None, (entry.tool_call_parser, entry.reasoning_parser)))
    named = "" if "scripted" in entry.lanes or not entry.serves("scripted") else " (scripted where named)"
    lanes, capabilities = ", ".join(entry.lanes) + named, ", ".join(sorted(entry.capabilities))
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
