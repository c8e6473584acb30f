"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vllm_harness.configuration.model_entries import Device, Frontend, Lane
from vllm_harness.environments.resolve import resolve, spec_of
from vllm_harness.environments.spec import Environment

LANE = Annotated[
    Lane | None,
    typer.Option(help="The lane: live (real weights) or scripted (a stand-in that follows scripts)."),
]
VLLM = Annotated[
    str | None,
    typer.Option(
        help="The server environment: 0.32.0, 0.33.0@0.32.0, tree:PATH@0.32.0 or installed[:PYTHON]."
    ),
]
FRONTEND = Annotated[Frontend | None, typer.Option(help="The HTTP front end of vLLM; by default python.")]
VLLM_PYTHON = Annotated[
    Path | None, typer.Option(help="The interpreter that has vLLM: the same as --vllm installed:PATH.")
]
DEVICE = Annotated[
    Device | None,
    typer.Option(help="The device of the server environment; by default what this machine has."),
]
CHANGED_FROM = Annotated[
    str, typer.Option(help="With --changed: the revision of the checkout to compare with; default HEAD.")
]
COLD_START = Annotated[bool, typer.Option(help="Start the server without the fork server.")]
MODELS_FILE = Annotated[
    Path | None, typer.Option(help="The file of the model entries; by default the harness's own models.yaml.")
]


def environment(vllm: str | None, vllm_python: Path | None, device: Device | None) -> Environment:
    """The server environment that the options name; it is made if it does not exist yet."""
    console = Console(stderr=True, highlight=False)
    return resolve(spec_of(vllm, vllm_python), device=device, create=True, progress=console.print)
