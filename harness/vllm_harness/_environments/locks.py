"""Lock files, which pin the packages of environments, and the recipes that they are made from."""

from __future__ import annotations

import datetime
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from vllm_harness._configuration.model_entries import Device
from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.paths import data_path
from vllm_harness._files.strict import StrictModel

HARNESS = "harness"
_NAME = re.compile(r"vllm-(?P<version>.+)-(?P<device>cpu|cuda)")


class Recipe(StrictModel):
    """One entry of `env/releases.yaml`.

    Attributes:
        requirements: the packages to resolve.
        torch: the version of torch to add without resolving it; None if the index has the right build.
        torch_requirements: the requirements of torch, which are resolved with the rest.
        exclude: distributions to leave out wherever they are required.
        override: requirements that replace what packages declare.
        ran_with_torch: other versions of torch with which this vLLM has run on a GPU.
        exclude_newer: the date after which uploaded files are ignored, so that the lock stays the same.
        note: a line for the header of the lock.
    """

    requirements: tuple[str, ...]
    torch: str | None = None
    torch_requirements: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    override: tuple[str, ...] = ()
    ran_with_torch: tuple[str, ...] = ()
    exclude_newer: datetime.date
    note: str = ""


@dataclass(frozen=True)
class Lock:
    """A lock file of a server environment."""

    path: Path
    version: str
    device: Device

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def digest(self) -> str:
        """A short hash of the content, for the names of environments."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:8]

    @property
    def torch(self) -> str:
        """The locked version of torch."""
        match = re.search(r"^torch==(\S+)", self.path.read_text(), re.M)
        assert match, f"{self.path} does not lock torch"
        return match.group(1)

    @property
    def fits_torch(self) -> tuple[str, ...]:
        """The versions of torch that this vLLM runs with, the locked one first. Raises UsageError."""
        own = self.torch.partition("+")[0]
        return (own, *recipes()[self.name].ran_with_torch)


def locks() -> list[Lock]:
    """The locks of releases, the newest version first."""
    known = []
    for path in data_path("env").glob("vllm-*.lock"):
        if match := _NAME.fullmatch(path.stem):
            device: Device = "cpu" if match["device"] == "cpu" else "cuda"
            known.append(Lock(path, match["version"], device))
    return sorted(known, key=lambda lock: (Version(lock.version), lock.device), reverse=True)


def lock_for(version: str | None, device: Device) -> Lock:
    """The lock of a release (by default the newest) for a device. Raises UsageError if there is none."""
    known = [lock for lock in locks() if lock.device == device]
    if not known:
        raise UsageError(f"there is no lock for {device}", hint="name the interpreter of an installed vLLM")
    for lock in known:
        if version in (None, lock.version):
            return lock
    versions = ", ".join(lock.version for lock in known)
    graft = f"; or a graft over their kernels: {version}@{known[0].version}" if device == "cpu" else ""
    raise UsageError(
        f"no lock for vLLM {version} on {device}",
        hint=f"use a release that has a lock for {device}: {versions}{graft}",
    )


def recipes() -> dict[str, Recipe]:
    """Reads the recipes of locks by name. Raises UsageError if `env/releases.yaml` is malformed."""
    known: dict[str, Recipe] = read_yaml(data_path("env") / "releases.yaml").validated(dict[str, Recipe])
    return known
