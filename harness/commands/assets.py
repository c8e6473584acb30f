"""`vllm-harness assets`: pinned files beside vLLM."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from harness.environments import assets
from harness.environments.progress import shown

app = typer.Typer(
    no_args_is_help=True, help="Fetch tokenizers, encodings and the small model into the cache."
)


@app.command()
def fetch(names: Annotated[list[str], typer.Argument(help="names from `assets list`")]) -> None:
    """Fetch assets that are not there yet, and print where they are."""
    for name in names:
        with shown() as progress:
            folder = assets.fetch(name, progress=progress)
        print(folder)


@app.command("list")
def list_() -> None:
    """The assets there are, and which of them the cache has."""
    table = Table("asset", "in the cache", "from", "what it is", box=None)
    for name, asset in assets.definitions().items():
        fetched = assets.cached(name)
        have = (f"{fetched.size / 1e6:.1f} MB", fetched.source) if fetched else ("no", "")
        table.add_row(name, *have, asset.description)
    Console(soft_wrap=True).print(table)
