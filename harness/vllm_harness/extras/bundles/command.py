"""`vllm-harness env bundle`: what a machine without a network needs, packed here and installed there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments import default_device
from vllm_harness._terminal.status import shown
from vllm_harness.cli.by_default import by_default
from vllm_harness.cli.options import DEVICE, MODELS_FILE

app = typer.Typer(
    cls=by_default("create"),
    no_args_is_help=True,
    help="Pack what a machine without a network needs (`env bundle OUT`), and install it there.",
)

_MODELS = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "--models",
        help="Model entries or hub ids, repeated or separated by commas; by default all that can be served.",
    ),
]


@app.command()
def create(
    out: Annotated[Path, typer.Argument(help="The new folder of the bundle.")],
    vllm: Annotated[
        str | None, typer.Option(help="The release, such as 0.32.0; by default the newest.")
    ] = None,
    device: DEVICE = None,
    models: _MODELS = None,
    part_size: Annotated[str, typer.Option(help="The largest size of a file, such as 60M or 2G.")] = "1G",
    hub_weights: Annotated[
        bool, typer.Option("--hub-weights", help="Include the weights of the models from the hub.")
    ] = False,
    without_torch: Annotated[
        bool,
        typer.Option(
            "--without-torch",
            help="Leave torch out, since a Python on the other machine has it (`env bundle install --over`).",
        ),
    ] = False,
    lean: Annotated[
        bool,
        typer.Option(
            "--lean",
            help="For a CUDA machine that takes little at a time: without torch, without kernels that Triton "
            "replaces, compressed. env/lean.yaml says what stays.",
        ),
    ] = False,
    models_file: MODELS_FILE = None,
) -> None:
    """Pack the checkout, the wheels and the assets for this Python version and kind of machine."""
    from vllm_harness.extras.bundles.create import create, parse_size

    size = parse_size(part_size)
    device = device or default_device()
    known = load_models(models_file)
    named = [name for each in models or [] for name in each.split(",") if name]
    entries = [known.get(name) for name in named] or [e for e in known if e.stand_in or e.weights]
    with shown() as progress:
        packed = create(
            out,
            version=vllm,
            device=device,
            entries=entries,
            part_size=size,
            hub_weights=hub_weights,
            without_torch=without_torch,
            lean=lean,
            progress=progress,
        )
    print(f"{packed.folder}: {packed.size / 1e6:.0f} MB in {packed.parts} parts")
    for kind, names in (("assets", packed.assets), ("weights of the hub", packed.hub)):
        if names:
            print(f"{kind}: {', '.join(names)}")
    left_out = [entry.name for entry in entries if "live" in entry.lanes and not entry.weights]
    if left_out and not hub_weights:
        print(f"without weights for the live lane (--hub-weights): {', '.join(left_out)}")
    command = f"python3 {packed.folder.name}/install.py FOLDER" + " --over PYTHON" * (lean or without_torch)
    print(f"to install it on the other machine, which only needs Python: {command}")


@app.command()
def install(
    bundle: Annotated[Path, typer.Argument(help="The folder of the bundle.")],
    over: Annotated[
        Path | None,
        typer.Option(help="The Python of this machine that has torch, for a bundle without it."),
    ] = None,
    unpacked: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Make the server environment of a bundle and install its assets, without a network.

    Every part of the bundle is checked first.
    """
    from vllm_harness.extras.bundles.place import install

    with shown() as progress:
        placed = install(bundle, unpacked=unpacked, over=over, progress=progress)
    print(f"{placed.environment.describe()}\n{placed.environment.python}")
    for name in placed.assets:
        print(f"asset {name}")
    for name in placed.hub:
        print(f"weights of {name}")
