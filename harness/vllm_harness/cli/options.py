"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from vllm_harness.environments.resolve import resolve, spec_of
from vllm_harness.environments.spec import Environment

LANE = Annotated[Literal["live", "scripted"] | None, typer.Option(help="live (real weights) or scripted.")]
VLLM = Annotated[
    str | None,
    typer.Option(help="Server environment: 0.32.0, 0.33.0@0.32.0, tree:PATH@0.32.0, installed[:PYTHON]."),
]
FRONTEND = Annotated[
    Literal["python", "rust"] | None, typer.Option(help="vLLM's HTTP front end; default python.")
]
VLLM_PYTHON = Annotated[Path | None, typer.Option(help="The same as --vllm installed:PATH.")]
DEVICE = Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="Device of the server environment.")]
COLD_START = Annotated[bool, typer.Option(help="Start without the fork server.")]
MODELS_FILE = Annotated[Path | None, typer.Option(help="Another models.yaml.")]


def environment(
    vllm: str | None, vllm_python: Path | None, device: Literal["cpu", "cuda"] | None
) -> Environment:
    """The server environment that the options name, made where it is not there yet."""
    console = Console(stderr=True, highlight=False)
    return resolve(spec_of(vllm, vllm_python), device=device, create=True, progress=console.print)
