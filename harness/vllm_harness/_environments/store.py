"""The environments that the harness has made, each a folder under the cache.

An environment is complete when its marker file is there: the marker is written last, so a half-made one is
never used.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._configuration.model_entries import Device
from vllm_harness._environments.metadata import stub_metadata
from vllm_harness._environments.spec import Environment, Kind
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir
from vllm_harness._terminal.status import Progress, quiet

_MARKER = "vllm-harness.json"


class MissingEnvironmentError(HarnessError):
    """The environment is not made yet."""


@dataclass(frozen=True)
class Marker:
    """The content of a complete environment's marker file; see `Environment` for the fields."""

    vllm_version: str
    device: Device
    torch: str
    kind: Kind = "release"
    kernels: str | None = None
    commit: str | None = None
    tree: str | None = None
    requirements: str | None = None  # a hash of the tree's requirements


@dataclass(frozen=True)
class StoredEnvironment:
    """An environment's folder on this machine; `environment` is None where it was left half-made."""

    folder: Path
    environment: Environment | None

    @property
    def lost_tree(self) -> Path | None:
        """The working tree that it is, where that is no longer there; its links lead nowhere then."""
        tree = self.environment.tree if self.environment else None
        return tree if tree and not (tree / "vllm").is_dir() else None

    def sizes(self) -> tuple[int, int]:
        """Bytes in total, and bytes that removing it frees: the rest is links into uv's cache."""
        stats = [path.lstat() for path in self.folder.rglob("*") if not path.is_dir()]
        return sum(s.st_blocks for s in stats) * 512, sum(s.st_blocks for s in stats if s.st_nlink == 1) * 512


def environments_folder() -> Path:
    """The folder of all environments."""
    return cache_dir() / "environments"


def make(folder: Path, build: Callable[[], Marker], progress: Progress) -> Environment:
    """The environment of a folder, built unless it is complete; one process builds, others wait.

    Raises what `build` raises; the folder is removed then.
    """
    with locked_for_making(folder, progress):
        if stored_environment := read(folder):
            return stored_environment
        shutil.rmtree(folder, ignore_errors=True)
        try:
            write_marker(folder, build())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return described(folder, read_marker(folder))


def read(folder: Path) -> Environment | None:
    """The environment of a folder; None unless it is complete."""
    try:
        return described(folder, read_marker(folder))
    except (OSError, ValueError, TypeError):
        return None


def read_marker(folder: Path) -> Marker:
    """The marker of a folder. Raises OSError, ValueError, TypeError where it is missing or damaged."""
    return Marker(**json.loads((folder / _MARKER).read_text()))


def write_marker(folder: Path, marker: Marker) -> None:
    """Declares a folder complete."""
    half = folder / f"{_MARKER}.half"
    half.write_text(json.dumps({name: value for name, value in vars(marker).items() if value is not None}))
    half.replace(folder / _MARKER)


def described(folder: Path, marker: Marker) -> Environment:
    """The environment in a folder, by its marker."""
    config = (folder / "pyvenv.cfg").read_text()
    found = re.search(r"^version_info = (\S+)", config, re.M)
    return Environment(
        kind=marker.kind,
        python=folder / "bin/python",
        python_version=found.group(1) if found else "unknown",
        vllm_version=marker.vllm_version,
        device=marker.device,
        torch=marker.torch,
        pythonpath=[stub_metadata(marker.vllm_version)] if marker.device == "cpu" else [],
        package=site_packages(folder) / "vllm",
        kernels=marker.kernels,
        commit=marker.commit,
        tree=Path(marker.tree) if marker.tree else None,
    )


def folder_of(environment: Environment) -> Path:
    """The folder of a made environment."""
    return environment.python.parent.parent


def site_packages(folder: Path) -> Path:
    """The site-packages folder of an environment."""
    return next((folder / "lib").glob("python3*"), folder / "lib") / "site-packages"


def stored() -> Iterator[StoredEnvironment]:
    """The environments on this machine, half-made and outdated ones included."""
    if environments_folder().exists():
        for folder in sorted(path for path in environments_folder().iterdir() if path.is_dir()):
            yield StoredEnvironment(folder, read(folder))


def remove(name: str) -> Path:
    """Removes an environment by its folder's name. Raises UsageError where there is none of that name."""
    known = [entry.folder.name for entry in stored()]
    if name not in known:
        raise UsageError(f"no environment {name}", hint=f"use one of: {', '.join(known) or 'there is none'}")
    with locked_for_making(environments_folder() / name, quiet):
        (environments_folder() / name / _MARKER).unlink(missing_ok=True)
        shutil.rmtree(environments_folder() / name)
    return environments_folder() / name
