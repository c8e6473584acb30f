"""Collects the content of a bundle: the checkout, the wheels in two lock files, assets and weights."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from itertools import filterfalse
from pathlib import Path

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._environments import assets
from vllm_harness._environments.installer import download_wheels, run_uv
from vllm_harness._environments.locks import HARNESS, Lock
from vllm_harness._environments.release_making import torch_at_hand
from vllm_harness._environments.sources import AssetError
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import checkout, data_path
from vllm_harness._terminal.status import Progress
from vllm_harness.extras.bundles.lean import LeanRules, lock_of, repack

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH = (
    *("torch", "torchaudio", "torchvision", "triton", "cuda-bindings", "cuda-toolkit"),
    *("nvidia-cublas", "nvidia-cuda-cupti", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cudnn-cu*"),
    *("nvidia-cufft", "nvidia-cufile", "nvidia-curand", "nvidia-cusolver", "nvidia-cusparse*"),
    *("nvidia-nccl-cu*", "nvidia-nvjitlink", "nvidia-nvshmem-cu*", "nvidia-nvtx"),
)
"""torch and its CUDA libraries, which make up most of the size of a CUDA environment."""


def collect_checkout(folder: Path, progress: Progress) -> None:
    """Adds the checkout without ignored files. Raises UsageError if the harness is not run from one."""
    root = checkout()
    if root is None:
        raise UsageError(
            "a bundle contains a checkout of the harness, but this harness does not run from a checkout",
            hint="run the command in a checkout of the harness",
        )
    progress("packing the checkout")
    run_uv("build", "--sdist", "--out-dir", folder / "checkout", root, progress=progress)
    (folder / "checkout" / ".gitignore").unlink(missing_ok=True)


def collect_wheels(
    folder: Path, lock: Lock, without_torch: bool, lean: LeanRules | None, progress: Progress
) -> None:
    """Adds the wheels of the harness and a vLLM release for the running Python, and the release's lock file.

    Args:
        folder: the folder in which the content is collected.
        lock: the lock of the release.
        without_torch: omit torch and its CUDA libraries from the wheels of the release.
        lean: rules on what to omit from all wheels; if given, both lock files are added, with the hashes
            of the new wheels.
        progress: receives a line for each step.

    Raises:
        InstallError: a wheel cannot be downloaded.
    """
    of_harness = data_path("env") / f"{HARNESS}.lock"
    by_lock = {
        of_harness.name: requirements(of_harness.read_text()),
        lock.path.name: requirements(lock.path.read_text()),
    }
    if without_torch:
        by_lock[lock.path.name] = list(filterfalse(_belongs_to_torch, by_lock[lock.path.name]))
    if lean:
        by_lock = {name: list(filter(lean.includes, pinned)) for name, pinned in by_lock.items()}
    torch = [] if torch_at_hand(lock) else ["--extra-index-url", TORCH_CPU_INDEX]
    for name, pinned in by_lock.items():
        _download(pinned, name.removesuffix(".lock"), folder, progress, *torch)
    if lean:
        progress("repacking the wheels without the files that are left out")
        repack(folder / "wheels", lean)
    (folder / "locks").mkdir()
    for name, pinned in by_lock.items():
        if lean:
            (folder / "locks" / name).write_text(lock_of(pinned, folder / "wheels"))
        elif name == lock.path.name:
            (folder / "locks" / name).write_text("\n".join(pinned))


def collect_assets(folder: Path, entries: Sequence[ModelEntry], progress: Progress) -> list[str]:
    """Adds the assets that servers for the model entries need; returns the names. Raises AssetError."""
    names = sorted({name for entry in entries for name in assets_of(entry)})
    for name in names:
        shutil.copytree(assets.fetch(name, progress=progress), folder / "assets" / name)
    return names


def collect_hub_weights(folder: Path, entries: Sequence[ModelEntry], progress: Progress) -> list[str]:
    """Adds Hugging Face snapshots, in the hub cache's layout, for entries whose weights are not an asset.

    Returns:
        The hub ids of the models.

    Raises:
        AssetError: a snapshot cannot be downloaded.
    """
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    hubs = [entry.hub for entry in entries if "live" in entry.lanes and not entry.weights]
    for hub in hubs:
        progress(f"fetching {hub.id} from the hub")
        try:
            snapshot = Path(huggingface_hub.snapshot_download(hub.id, revision=hub.revision))
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
            raise AssetError(
                f"the weights of {hub.id} cannot be downloaded from the hub: {error}",
                hint="check the connection to the hub, or leave out --hub-weights",
            ) from None
        repository = folder / "hub" / snapshot.parents[1].name
        shutil.copytree(snapshot, repository / "snapshots" / snapshot.name)
        (repository / "refs").mkdir()
        (repository / "refs" / hub.revision).write_text(snapshot.name)
    return [hub.id for hub in hubs]


def assets_of(entry: ModelEntry) -> Iterator[str]:
    """Yields the names of a model entry's assets: its weights if they are an asset, and its stand-in's."""
    if entry.weights:
        yield entry.weights
    if entry.stand_in:
        yield entry.stand_in.tokenizer
        yield from entry.stand_in.assets.values()


def requirements(lock: str) -> list[str]:
    """Returns the requirements in the text of a lock file, each with its hashes."""
    pinned: list[str] = re.findall(r"^[\w.-]+==(?:.*\\\n)*.*$", lock, re.M)
    return pinned


def _belongs_to_torch(requirement: str) -> bool:
    return any(fnmatch(requirement.partition("==")[0], pattern) for pattern in TORCH)


def _download(pinned: Sequence[str], name: str, folder: Path, progress: Progress, *options: str) -> None:
    """Downloads the wheels for requirements; requirements without a hash need a separate command."""
    progress(f"downloading the wheels of {name}")
    unhashed = [requirement for requirement in pinned if "--hash=" not in requirement]
    hashed = folder / f"{name}.hashed"
    hashed.write_text("\n".join(requirement for requirement in pinned if "--hash=" in requirement))
    wheels = folder / "wheels"
    download_wheels(wheels, "--require-hashes", "--requirement", hashed, progress=progress)
    if unhashed:
        download_wheels(wheels, *options, *unhashed, progress=progress)
    hashed.unlink()
