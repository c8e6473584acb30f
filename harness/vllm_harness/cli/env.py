"""`vllm-harness env`: manages the environments that servers run in."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from vllm_harness._configuration.model_entries import Device
from vllm_harness._environments import locks, operators, resolve, store, upstream
from vllm_harness._environments.lock_making import make_lock
from vllm_harness._environments.verify import verify as verify_environment
from vllm_harness._files.paths import checkout
from vllm_harness._terminal.status import shown
from vllm_harness._terminal.tables import plain_console, show_table

app = typer.Typer(no_args_is_help=True, help="Make, check and remove the environments that servers run in.")

_Spec = Annotated[
    str,
    typer.Argument(
        help="The environment: `0.32.0`, `0.33.0@0.32.0`, `tree:/path/to/vllm@0.32.0` or "
        "`installed[:/path/to/python]`."
    ),
]


@app.command()
def create(spec: _Spec, device: Device | None = None) -> None:
    """Make an environment (release, graft or tree), and check that vllm can be imported in it."""
    with shown() as progress:
        environment = resolve(spec, device, create=True, progress=progress)
    print(f"{environment.describe()}\n{environment.python}")


@app.command()
def verify(
    spec: _Spec,
    device: Device | None = None,
    source: bool = False,
) -> None:
    """Import vllm in an environment, and check its version, platform, kernels and operators."""
    with shown() as progress:
        environment = resolve(spec, device)
        progress("importing vllm")
        verify_environment(environment)
        lacking = operators.lacking(environment)
        comparison = upstream.compare(environment, progress=progress) if source else None
    print(f"{environment.describe()}: vllm can be imported, and its kernels load")
    if lacking:
        print(f"operators newer than {environment.kernels}, which its kernels lack; a call to them fails:")
        for operator, file in lacking.items():
            print(f"  {operator}, named in {file}")
    if comparison:
        _print_comparison(comparison, environment.vllm_version)


def _print_comparison(comparison: upstream.SourceComparison, version: str) -> None:
    print(f"{comparison.same} Python files are the same as in the official source distribution of {version}")
    for file in comparison.changed:
        print(f"  changed: {file}")
    for state, files in (("missing", comparison.missing), ("added", comparison.added)):
        for top, count in Counter(file.split("/")[0] for file in files).items():
            print(f"  {state}: {top}" + (f", {count} files" if count > 1 else ""))


@app.command("list")
def list_() -> None:
    """List the environments of this machine with their sizes, and the releases that can be made."""
    rows = []
    here = list(store.stored())
    for entry in here:
        whole, own = entry.sizes()
        rows.append((entry.folder.name, f"{whole / 1e9:.2f} GB", f"{own / 1e9:.2f} GB", _state(entry)))
    for lock in locks.locks():
        if not any(entry.folder.name.startswith(f"{lock.name}-") for entry in here):
            rows.append((lock.name, "-", "-", "not made"))
    show_table(plain_console(), ("name", "size", "own size", "state"), rows, {"size", "own size"})
    print("own size: what `env remove` frees; the rest is shared with the cache of uv (`uv cache prune`)")


def _state(entry: store.StoredEnvironment) -> str:
    if entry.environment is None:
        return "incomplete: remove it"
    described = entry.environment.describe()
    return f"{described}: its tree is gone, remove it" if entry.lost_tree else described


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="The name of an environment; `env list` shows them.")],
) -> None:
    """Remove an environment."""
    print(f"removed {store.remove(name)}")


@app.command(hidden=not checkout())
def lock(
    names: Annotated[
        list[str], typer.Argument(help="The names of recipes in env/releases.yaml, or `harness`, `ray`.")
    ],
) -> None:
    """Resolve recipes of env/releases.yaml again, and write their lock files (for maintainers)."""
    with shown() as progress:
        for name in names:
            print(make_lock(name, progress))
