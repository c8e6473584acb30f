"""Releases: isolated interpreters, each made from a lock and named after it."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from vllm_harness._configuration.model_entries import Device
from vllm_harness._environments.installer import InstallError, find_links, run_uv, uv_environ, uv_path
from vllm_harness._environments.locks import Lock, lock_for
from vllm_harness._environments.spec import Environment
from vllm_harness._environments.store import (
    Marker,
    MissingEnvironmentError,
    described,
    environments_folder,
    make,
    read,
)
from vllm_harness._environments.verify import verify
from vllm_harness._terminal.status import Progress, quiet

_PYTHONS = ("3.11", "3.12", "3.13")


def find(version: str, device: Device) -> Environment:
    """The made environment of a release. Raises UsageError (no lock), MissingEnvironmentError."""
    lock = lock_for(version, device)
    for minor in minors():
        if environment := read(_folder(lock, minor)):
            return environment
    raise MissingEnvironmentError(
        f"the environment of vLLM {version} ({device}) is not made yet",
        hint=f"vllm-harness env create {version} --device {device}",
    )


def create(version: str, device: Device, *, progress: Progress = quiet) -> Environment:
    """The environment of a release, made unless it exists.

    Raises UsageError (no lock), InstallError (no package, no network, no space), BrokenEnvironmentError.
    """
    try:
        return find(version, device)
    except MissingEnvironmentError:
        lock = lock_for(version, device)
    minor, executable = interpreter(lock)
    folder = _folder(lock, minor)

    def build() -> Marker:
        install(lock, folder, minor, executable, progress)
        marker = Marker(lock.version, lock.device, lock.torch)
        progress("checking that vllm imports")
        verify(described(folder, marker))
        return marker

    return make(folder, build, progress)


def install(lock: Lock, folder: Path, minor: str, executable: Path, progress: Progress) -> None:
    """A virtual environment on a Python (its minor version and path), with the packages of a lock.

    Raises InstallError.
    """
    progress(f"making {folder.name} from {lock.path.name}")
    environ = uv_environ()
    run_uv("venv", "--no-project", "--python", executable, folder, progress=progress, environ=environ)
    backend = (
        ["--torch-backend", "cpu"] if lock.torch.endswith("+cpu") and not _torch_offered(lock, minor) else []
    )
    run_uv(
        "pip",
        "install",
        "--python",
        folder / "bin/python",
        "--no-deps",
        "--only-binary",
        ":all:",
        *backend,
        "--requirements",
        lock.path,
        progress=progress,
        environ=environ,
    )


def minors() -> list[str]:
    """The Python versions that a server may run on, this interpreter's first."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return sorted(_PYTHONS, key=lambda minor: minor != running)


def interpreter(lock: Lock) -> tuple[str, Path]:
    """The Python to build on: this interpreter, unless a CPU torch is at hand for another version only."""
    wanted = minors()
    if lock.torch.endswith("+cpu"):
        wanted.sort(key=lambda minor: not _torch_offered(lock, minor))
    for minor in wanted:
        if minor == ".".join(map(str, sys.version_info[:2])):
            return minor, Path(sys.executable)
        found = subprocess.run(
            [uv_path(), "python", "find", "--no-project", "--system", minor],
            env=uv_environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if found.returncode == 0:
            return minor, Path(found.stdout.strip())
    raise InstallError(
        "there is no Python 3.11 to 3.13 on this machine", hint="install one, or put it on PATH"
    )


def torch_at_hand(lock: Lock) -> bool:
    """Whether a configured folder of wheels has the locked torch for a Python that a server may run on."""
    return not lock.torch.endswith("+cpu") or any(_torch_offered(lock, minor) for minor in _PYTHONS)


def _torch_offered(lock: Lock, minor: str) -> bool:
    """Whether a configured folder of wheels has the locked torch for this Python and machine."""
    pattern = f"torch-{lock.torch}-cp{minor.replace('.', '')}-*_{platform.machine()}.whl"
    return any(next(folder.glob(pattern), None) for folder in find_links())


def _folder(lock: Lock, minor: str) -> Path:
    return environments_folder() / f"{lock.name}-py{minor}-{lock.digest}"
