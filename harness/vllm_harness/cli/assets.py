"""`vllm-harness assets`: the pinned files that servers need beside vLLM."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_harness.environments import assets
from vllm_harness.terminal.status import shown
from vllm_harness.terminal.tables import plain_console, show_table

app = typer.Typer(
    no_args_is_help=True, help="Fetch tokenizers, encodings and the small model into the cache."
)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="The names of assets; `assets list` shows them.")],
) -> None:
    """Fetch assets that are not in the cache yet, and print their folders."""
    for name in names:
        with shown() as progress:
            folder = assets.fetch(name, progress=progress)
        print(folder)


@app.command("list")
def list_() -> None:
    """List the assets, and what the cache has of each."""
    rows = []
    for name, asset in assets.definitions().items():
        fetched = assets.cached(name)
        state = f"{fetched.size / 1e6:.1f} MB from {fetched.source}" if fetched else "no"
        rows.append((name, state, asset.description))
    show_table(plain_console(), ("name", "in the cache", "description"), rows)
