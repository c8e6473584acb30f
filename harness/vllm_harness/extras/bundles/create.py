"""Makes a bundle on a machine with a network."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_harness._configuration.model_entries import Device, ModelEntry
from vllm_harness._environments.locks import Lock, lock_for
from vllm_harness._errors import UsageError
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import Progress, quiet
from vllm_harness.extras.bundles import contents
from vllm_harness.extras.bundles.harness_identity import this_harness
from vllm_harness.extras.bundles.lean import lean_rules
from vllm_harness.extras.bundles.parts import pack

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
SMALLEST_PART = 10**6


@dataclass(frozen=True)
class CreatedBundle:
    """A new bundle: its folder, its size in bytes, its number of parts, and its assets and hub weights."""

    folder: Path
    size: int
    parts: int
    assets: list[str]
    hub: list[str]


def create(
    folder: Path,
    *,
    version: str | None,
    device: Device,
    entries: Sequence[ModelEntry],
    part_size: int,
    hub_weights: bool = False,
    without_torch: bool = False,
    lean: bool = False,
    progress: Progress = quiet,
) -> CreatedBundle:
    """Makes a bundle for this Python version and kind of machine; `folder` appears once it is complete.

    Args:
        folder: the folder of the bundle, which must not exist.
        version, device: the vLLM release whose wheels to include (None for the newest), and its device.
        entries: the model entries whose assets to include.
        part_size: the maximum size of a part in bytes.
        hub_weights: add weights from the Hugging Face hub, for entries whose weights are not an asset.
        without_torch: omit torch, for machines that have the torch version that vLLM was built for.
        lean: omit torch and everything that `env/lean.yaml` lists, and compress the rest.
        progress: receives a line for each step.

    Raises:
        UsageError: the folder exists, the release has no lock file, there is no checkout, or a lean bundle
            is requested for a device other than CUDA.
        InstallError: a wheel cannot be downloaded.
        AssetError: an asset or weights cannot be fetched.
    """
    folder = folder.absolute()
    if folder.exists():
        raise UsageError(f"{folder} exists already", hint="name a new folder")
    lock = lock_for(version, device)
    if lean and device != "cuda":
        raise UsageError(f"--lean is not supported for the device {device}", hint="add --device cuda")
    rules = lean_rules() if lean else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(folder.parent) as temporary:
        content, bundle = temporary / "content", temporary / "bundle"
        content.mkdir()
        bundle.mkdir()
        contents.collect_checkout(content, progress)
        contents.collect_wheels(content, lock, without_torch, rules, progress)
        names = contents.collect_assets(content, entries, progress)
        hub = contents.collect_hub_weights(content, entries, progress) if hub_weights else []
        progress("packing")
        about = {
            **_about(lock),
            "device": device,
            "without_torch": without_torch or lean,
            "models": [entry.name for entry in entries],
            "assets": names,
            "hub": hub,
        }
        manifest = pack(content, bundle, part_size, about, compressed=lean)
        shutil.move(bundle, folder)
    size = sum(part["size"] for part in manifest["parts"])
    return CreatedBundle(folder, size, len(manifest["parts"]), names, hub)


def _about(lock: Lock) -> dict[str, Any]:
    """Returns the keys of a manifest that describe this machine and the release."""
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "machine": platform.machine(),
        "system": sys.platform,
        "vllm": lock.version,
        "lock": lock.digest,
        "harness": this_harness(),
    }


def parse_size(text: str) -> int:
    """Parses a size such as `60M`; K, M and G are powers of 1000. Raises UsageError if it is invalid."""
    match = re.fullmatch(r"(\d+)([KMG]?)B?", text.strip().upper())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if size < SMALLEST_PART:
        raise UsageError(
            f"the part size {text!r} is not a size of 1M or more", hint="use a size such as 60M or 2G"
        )
    return size
