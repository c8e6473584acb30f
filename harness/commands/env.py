"""`vllm-harness env`: server environments."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from harness.environments import locks, made, resolve
from harness.environments.progress import shown
from harness.environments.spec import Device
from harness.environments.verify import verify as verify_environment

app = typer.Typer(no_args_is_help=True, help="Make, check and remove the environments that servers run in.")

_Spec = Annotated[
    str,
    typer.Argument(
        help="`0.32.0`, `0.33.0@0.32.0`, `tree:/path/to/vllm@0.32.0` or `installed[:/path/to/python]`"
    ),
]
_Device = Annotated[str | None, typer.Option(help="cpu or cuda; default: what this machine has")]


@app.command()
def create(spec: _Spec, device: _Device = None) -> None:
    """Make an environment (release, graft or tree), and check that vllm imports in it."""
    with shown() as progress:
        environment = resolve(spec, _device(device), create=True, progress=progress)
    print(f"{environment.describe()}\n{environment.python}")


@app.command()
def verify(spec: _Spec, device: _Device = None) -> None:
    """Import vllm in an environment and check version, platform and kernels."""
    with shown() as progress:
        environment = resolve(spec, _device(device))
        progress("importing vllm")
        verify_environment(environment)
    print(f"{environment.describe()}: imports, kernels load")


@app.command("list")
def list_() -> None:
    """The environments made on this machine, with sizes, and the releases that could be."""
    table = Table(
        *(Column(name, no_wrap=True) for name in ("environment", "made", "size", "own size")), box=None
    )
    here = list(made.made())
    for entry in here:
        whole, own = entry.sizes()
        state = f"torch {entry.environment.torch}" if entry.environment else "half-made: remove it"
        table.add_row(entry.folder.name, state, f"{whole / 1e9:.2f} GB", f"{own / 1e9:.2f} GB")
    for lock in locks.locks():
        if not any(entry.folder.name.startswith(f"{lock.name}-") for entry in here):
            table.add_row(lock.name, "no", "", "")
    Console().print(table)
    print("own size: what removing it frees; the rest is shared with uv's cache (`uv cache prune`)")


@app.command()
def remove(name: Annotated[str, typer.Argument(help="a name from `env list`")]) -> None:
    """Remove an environment."""
    print(f"removed {made.remove(name)}")


@app.command()
def lock(names: Annotated[list[str], typer.Argument(help="names in env/releases.yaml")]) -> None:
    """Resolve env/releases.yaml again and write the lock files (for maintainers)."""
    with shown() as progress:
        for name in names:
            print(locks.make_lock(name, progress))


def _device(text: str | None) -> Device | None:
    if text not in (None, "cpu", "cuda"):
        raise typer.BadParameter(f"`{text}` is neither cpu nor cuda", param_hint="--device")
    return text  # type: ignore[return-value]
