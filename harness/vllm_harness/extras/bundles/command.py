"""`vllm-harness env bundle` packs what a machine without a network needs, and installs it there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._configuration.model_entries import Device, load_models
from vllm_harness._environments import default_device
from vllm_harness._terminal.status import shown
from vllm_harness.cli.by_default import by_default

app = typer.Typer(
    cls=by_default("create"),
    no_args_is_help=True,
    help="Pack what a machine without a network needs (`env bundle OUT`), and install it there.",
)


@app.command()
def create(
    out: Annotated[Path, typer.Argument(help="The folder to create for the bundle.")],
    vllm: str | None = None,
    device: Device | None = None,
    model: list[str] | None = None,
    part_size: str = "1G",
    hub_weights: bool = False,
    without_torch: bool = False,
    lean: bool = False,
    models_file: Path | None = None,
) -> None:
    """Pack the checkout, the wheels and the assets for this Python version and kind of machine.

    --vllm is a release, by default the newest. --model takes comma-separated
    names, by default all that can be served. --without-torch is for machines
    with a Python that has torch. --lean, for CUDA only, also leaves out torch
    and kernels that Triton replaces, and compresses the rest.
    """
    from vllm_harness.extras.bundles.create import create, parse_size

    size = parse_size(part_size)
    device = device or default_device()
    known = load_models(models_file)
    named = [name for each in model or [] for name in each.split(",") if name]
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
    for kind, names in (("assets", packed.assets), ("weights from the hub", packed.hub)):
        if names:
            print(f"{kind}: {', '.join(names)}")
    left_out = [entry.name for entry in entries if "live" in entry.lanes and not entry.weights]
    if left_out and not hub_weights:
        print(f"without weights for the live lane (--hub-weights): {', '.join(left_out)}")
    command = f"python3 {packed.folder.name}/install.py FOLDER" + " --over PYTHON" * (lean or without_torch)
    print(f"to install it on the other machine, which needs only Python: {command}")


@app.command()
def install(
    bundle: Annotated[Path, typer.Argument(help="The folder of the bundle.")],
    over: Path | None = None,
    unpacked: Path | None = None,
) -> None:
    """Install the server environment and the assets of a bundle, without a network.

    Every part of the bundle is checked first. --over names a Python that has
    torch, for a bundle without torch.
    """
    from vllm_harness.extras.bundles.place import install

    with shown() as progress:
        placed = install(bundle, unpacked=unpacked, over=over, progress=progress)
    print(f"{placed.environment.describe()}\n{placed.environment.python}")
    for name in placed.assets:
        print(f"asset {name}")
    for name in placed.hub:
        print(f"weights of {name}")
