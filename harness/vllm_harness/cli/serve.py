"""`vllm-harness serve`: a server by hand, with a script book if wanted."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from vllm_harness.cli.options import (
    COLD_START,
    DEVICE,
    FRONTEND,
    LANE,
    MODELS_FILE,
    VLLM,
    VLLM_PYTHON,
    environment,
)
from vllm_harness.scripted.book_file import load_book
from vllm_harness.server.progress import ConsoleProgress
from vllm_harness.server.remote import RemoteServer

CHECK_S = 0.5


def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model entry or a hub id.")],
    lane: LANE = None,
    book: Annotated[
        Path | None, typer.Option(help="The script book (YAML) that the scripted lane answers from.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The port of the server; by default a free port.")] = None,
    vllm: VLLM = None,
    vllm_python: VLLM_PYTHON = None,
    device: DEVICE = None,
    frontend: FRONTEND = None,
    cold_start: COLD_START = False,
    models_file: MODELS_FILE = None,
) -> None:
    """Start a server, and keep it until Ctrl-C.

    Further flags after `--` go to `vllm serve`.
    """
    console = Console(highlight=False, soft_wrap=True)
    rules = load_book(book) if book else []
    server = RemoteServer(
        model,
        lane=lane or ("scripted" if book else "live"),
        vllm=environment(vllm, vllm_python, device),
        frontend=frontend or "python",
        args=context.args,
        port=port,
        cold_start=cold_start,
        progress=ConsoleProgress(),
        models_file=models_file,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with server:
            for rule in rules:
                server.book().add(rule)
            console.print(f"url      {server.url_for('/v1')}")
            console.print(f"model    {server.model} ({server.lane}, {server.launch.describe()})")
            console.print(f"log      {server.log_path}")
            console.print("Ctrl-C ends the server")
            while True:
                time.sleep(CHECK_S)
                server.check()
    except KeyboardInterrupt:
        console.print("stopped")


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
