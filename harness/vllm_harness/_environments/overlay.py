"""Additional packages for processes of a server environment, which find them through PYTHONPATH."""

from __future__ import annotations

import hashlib
from pathlib import Path

from vllm_harness._environments.installer import install_into
from vllm_harness._environments.spec import Environment, overlays_folder
from vllm_harness._files.paths import data_path
from vllm_harness._terminal.status import Progress


def overlay(
    name: str, environment: Environment, progress: Progress, *, python_version: str | None = None
) -> Path:
    """Returns a folder with the packages in `env/NAME.lock`, which are installed into it on first use.

    Args:
        python_version: the version of Python to select packages for, if they declare a newer one than they
            really need; by default the environment's.

    Raises:
        InstallError: the packages cannot be installed.
    """
    lock = data_path("env") / f"{name}.lock"
    python = python_version or ".".join(environment.python_version.split(".")[:2])
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:8]
    folder = overlays_folder() / f"{name}-py{python}-{digest}"
    version = [f"--python-version={python_version}"] if python_version else []
    options = ("--no-deps", "--require-hashes", f"--python={environment.python}", *version)
    return install_into(folder, *options, "-r", lock, progress=progress)
