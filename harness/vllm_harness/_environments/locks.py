"""Lock files, which pin the packages of environments, and the recipes that they are generated from."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from vllm_harness._configuration.model_entries import Device
from vllm_harness._environments.installer import run_uv, uv_environ
from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.paths import data_path
from vllm_harness._files.strict import StrictModel
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import Progress

HARNESS = "harness"
OF_THE_CHECKOUT = {
    HARNESS: ("its dev group", ["--group=dev"]),
    "ray": ("its dev group and extra cluster", ["--group=dev", "--extra=cluster"]),
}
"""Locks made from pyproject.toml -> the parts of it that each includes, in words and as options of uv."""
_SIDE_SOURCES = {"UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"}
_NAME = re.compile(r"vllm-(?P<version>.+)-(?P<device>cpu|cuda)")

_HEADER = """\
# Server environment {name}: Linux, x86_64 and aarch64, Python 3.11 to 3.13.
# Made by `vllm-harness env lock {name}` from env/releases.yaml; do not edit.{note}
"""
_CHECKOUT_HEADER = """\
# The harness's own environment: pyproject.toml's dependencies and {parts}, for any platform.
# Made by `vllm-harness env lock {name}`; do not edit.
"""
_TORCH = """\
# torch has no hash: its CPU wheel may come from a folder of wheels or from PyTorch's CPU index.
torch=={torch}
"""


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


def make_lock(name: str, progress: Progress) -> Path:
    """Resolves a recipe, or parts of pyproject.toml, against the main index, and writes `env/NAME.lock`.

    Locks made from pyproject.toml keep the versions in `env/harness.lock`, so that a new dependency changes
    no other package. Remove that file to get the newest versions.

    Raises:
        UsageError: there is no such recipe.
        InstallError: the requirements cannot be resolved.
    """
    target = data_path("env") / f"{name}.lock"
    if name in OF_THE_CHECKOUT:
        parts, options = OF_THE_CHECKOUT[name]
        header = _CHECKOUT_HEADER.format(name=name, parts=parts)
        preferred = data_path("env") / f"{HARNESS}.lock"
        body = _compiled(data_path("pyproject.toml").parent, options, progress, preferred=preferred)
    else:
        header, body = _resolved(name, progress)
    target.write_text(header + body)
    return target


def _resolved(name: str, progress: Progress) -> tuple[str, str]:
    known = recipes()
    if name not in known:
        raise UsageError(
            f"no recipe {name} in env/releases.yaml",
            hint=f"use one of {', '.join([*OF_THE_CHECKOUT, *known])}",
        )
    recipe = known[name]
    header = _HEADER.format(name=name, note=f"\n# {recipe.note}" if recipe.note else "")
    torch = _TORCH.format(torch=recipe.torch) if recipe.torch else ""
    with temporary_folder() as folder:
        (folder / "pyproject.toml").write_text(_project(recipe))
        body = _compiled(folder, ["--no-build", "--exclude-newer", str(recipe.exclude_newer)], progress)
    return header + torch, body


def _compiled(project: Path, options: list[str], progress: Progress, preferred: Path | None = None) -> str:
    flags = ["--universal", "--generate-hashes", "--no-header", "--no-annotate", *options]
    environ = {name: value for name, value in uv_environ().items() if name not in _SIDE_SOURCES}
    with temporary_folder() as folder:
        out = folder / "lock"
        if preferred and preferred.exists():
            out.write_text(preferred.read_text())  # uv keeps the versions in an existing output file
        where = [f"--directory={project}", f"--output-file={out}"]
        run_uv("pip", "compile", "pyproject.toml", *flags, *where, progress=progress, environ=environ)
        return out.read_text()


def _project(recipe: Recipe) -> str:
    machines = [f"sys_platform == 'linux' and platform_machine == '{name}'" for name in ("x86_64", "aarch64")]
    project = {
        "name": "lock",
        "version": "0",
        "requires-python": ">=3.11,<3.14",
        "dependencies": recipe.requirements + recipe.torch_requirements,
    }
    settings = {
        "environments": machines,
        "exclude-dependencies": recipe.exclude + (("torch",) if recipe.torch else ()),
        "override-dependencies": recipe.override,
    }
    return _table("project", project) + _table("tool.uv", settings)


def _table(name: str, values: Mapping[str, object]) -> str:
    """Formats a TOML table; strings and lists are written as in JSON."""
    return f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
