"""Packages beside those of a server environment, for the processes that get their folder on PYTHONPATH."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from vllm_harness._environments.installer import run_uv
from vllm_harness._environments.spec import Environment
from vllm_harness._files.locking import half_made, locked_for_making
from vllm_harness._files.paths import cache_dir, data_path
from vllm_harness._terminal.status import Progress


def overlay(
    name: str, environment: Environment, progress: Progress, *, python_version: str | None = None
) -> Path:
    """The folder of the packages that `env/NAME.lock` names, without their dependencies; made once.

    Args:
        python_version: the Python that they are chosen for, where they ask for a newer one than they need;
            by default the environment's.

    Raises:
        InstallError: they cannot be installed.
    """
    lock = data_path("env") / f"{name}.lock"
    python = python_version or ".".join(environment.python_version.split(".")[:2])
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:8]
    folder = _folder() / f"{name}-py{python}-{digest}"
    with locked_for_making(folder, progress):
        if not folder.exists():
            with half_made(folder) as half:
                target = [f"--target={half}/packages", f"--python={environment.python}"]
                chosen = [f"--python-version={python_version}"] if python_version else []
                options = ("--no-deps", "--require-hashes", *target, *chosen)
                run_uv("pip", "install", *options, "-r", lock, progress=progress)
                (half / "packages").rename(folder)
    return folder


def without_overlays(path: str) -> str:
    """A value of PYTHONPATH without these folders, whose packages vLLM imports when it first needs them."""
    return os.pathsep.join(each for each in path.split(os.pathsep) if Path(each).parent != _folder())


def _folder() -> Path:
    return cache_dir() / "overlays"
