"""The environments that the harness has made, each in a folder of the cache.

An environment is complete if its marker file exists. The marker is written last, so an incomplete environment
is never used.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._configuration.model_entries import Device
from vllm_harness._environments.spec import Environment, Kind, stub_metadata
from vllm_harness._errors import UsageError
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir
from vllm_harness._terminal.status import Progress, quiet

_MARKER = "vllm-harness.json"


class MissingEnvironmentError(UsageError):
    """The environment has not been made yet."""


@dataclass(frozen=True)
class Marker:
    """The content of a marker file: fields of `Environment`, and a hash of a tree's requirements."""

    vllm_version: str
    device: Device
    torch: str
    kind: Kind = "release"
    kernels: str | None = None
    commit: str | None = None
    tree: str | None = None
    requirements: str | None = None


@dataclass(frozen=True)
class StoredEnvironment:
    """The folder of an environment on this machine; `environment` is None if it is incomplete."""

    folder: Path
    environment: Environment | None

    @property
    def lost_tree(self) -> Path | None:
        """The environment's working tree if it no longer exists, so that the links to it are broken."""
        tree = self.environment.tree if self.environment else None
        return tree if tree and not (tree / "vllm").is_dir() else None

    def sizes(self) -> tuple[int, int]:
        """The total size in bytes, and the part that is not shared with uv's cache by hard links."""
        stats = [path.lstat() for path in self.folder.rglob("*") if not path.is_dir()]
        own = (stat.st_blocks for stat in stats if stat.st_nlink == 1)
        return sum(stat.st_blocks for stat in stats) * 512, sum(own) * 512


def environments_folder() -> Path:
    """The folder of all environments."""
    return cache_dir() / "environments"


def make(folder: Path, build: Callable[[], Marker], progress: Progress) -> Environment:
    """Builds the environment in a folder unless it is complete; one process builds while others wait.

    If `build` raises, the folder is removed.
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
    """Reads the environment in a folder; None unless it is complete."""
    try:
        return described(folder, read_marker(folder))
    except (OSError, ValueError, TypeError):
        return None


def read_marker(folder: Path) -> Marker:
    """Reads the marker of a folder. Raises OSError, ValueError or TypeError if it is missing or damaged."""
    return Marker(**json.loads((folder / _MARKER).read_text()))


def write_marker(folder: Path, marker: Marker) -> None:
    """Writes the marker of a folder, which makes the environment complete."""
    half = folder / f"{_MARKER}.half"
    half.write_text(json.dumps({name: value for name, value in vars(marker).items() if value is not None}))
    half.replace(folder / _MARKER)


def described(folder: Path, marker: Marker) -> Environment:
    """Describes the environment in a folder that has this marker."""
    version = re.search(r"^version_info = (\S+)", (folder / "pyvenv.cfg").read_text(), re.M)
    return Environment(
        kind=marker.kind,
        python=folder / "bin/python",
        python_version=version.group(1) if version else "unknown",
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
    """The folder of an environment that the harness has made."""
    return environment.python.parent.parent


def site_packages(folder: Path) -> Path:
    """The site-packages folder of an environment."""
    return next((folder / "lib").glob("python3*"), folder / "lib") / "site-packages"


def stored() -> Iterator[StoredEnvironment]:
    """The environments on this machine, including incomplete and outdated ones."""
    if environments_folder().exists():
        for folder in sorted(path for path in environments_folder().iterdir() if path.is_dir()):
            yield StoredEnvironment(folder, read(folder))


def remove(name: str) -> Path:
    """Removes the environment whose folder has this name. Raises UsageError if there is none."""
    known = [entry.folder.name for entry in stored()]
    if name not in known:
        raise UsageError(f"no environment {name}", hint=f"the environments are: {', '.join(known) or 'none'}")
    with locked_for_making(environments_folder() / name, quiet):
        (environments_folder() / name / _MARKER).unlink(missing_ok=True)
        shutil.rmtree(environments_folder() / name)
    return environments_folder() / name
