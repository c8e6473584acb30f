"""`vllm-harness env`: server environments."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from vllm_harness.environments import locks, made, operators, resolve, upstream
from vllm_harness.environments.spec import Device
from vllm_harness.environments.verify import verify as verify_environment
from vllm_harness.terminal.status import shown
from vllm_harness.terminal.tables import plain_console, show_table

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
def verify(
    spec: _Spec,
    device: _Device = None,
    source: Annotated[
        bool, typer.Option(help="Compare its Python code with vLLM's official source distribution as well.")
    ] = False,
) -> None:
    """Import vllm in an environment and check version, platform, kernels and operators."""
    with shown() as progress:
        environment = resolve(spec, _device(device))
        progress("importing vllm")
        verify_environment(environment)
        lacking = operators.lacking(environment)
        comparison = upstream.compare(environment, progress=progress) if source else None
    print(f"{environment.describe()}: imports, kernels load")
    if lacking:
        print(
            f"operators that are new since {environment.kernels} and not in its kernels; calling one fails:"
        )
        for operator, file in lacking.items():
            print(f"  {operator}, named in {file}")
    if comparison:
        _print_comparison(comparison, environment.vllm_version)


def _print_comparison(comparison: upstream.Comparison, version: str) -> None:
    print(f"{comparison.same} Python files are those of the official source distribution of vllm {version}")
    for file in comparison.changed:
        print(f"  changed: {file}")
    for how, files in (("missing", comparison.missing), ("added", comparison.added)):
        for top, count in Counter(file.split("/")[0] for file in files).items():
            print(f"  {how}: {top}" + (f", {count} files" if count > 1 else ""))


@app.command("list")
def list_() -> None:
    """The environments made on this machine, with sizes, and the releases that could be."""
    rows = []
    here = list(made.made())
    for entry in here:
        whole, own = entry.sizes()
        state = entry.environment.describe() if entry.environment else "half-made: remove it"
        rows.append((entry.folder.name, f"{whole / 1e9:.2f} GB", f"{own / 1e9:.2f} GB", state))
    for lock in locks.locks():
        if not any(entry.folder.name.startswith(f"{lock.name}-") for entry in here):
            rows.append((lock.name, "-", "-", "not made"))
    show_table(plain_console(), ("name", "size", "own size", "what it is"), rows, {"size", "own size"})
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
