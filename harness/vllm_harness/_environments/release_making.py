"""Makes the environment of a release: a virtual environment with the packages of its lock."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from vllm_harness._environments import store
from vllm_harness._environments.installer import InstallError, find_links, run_uv, uv_environ, uv_path
from vllm_harness._environments.locks import Lock
from vllm_harness._environments.release import PYTHONS, folder_of, minors
from vllm_harness._environments.spec import Environment
from vllm_harness._environments.verify import verify
from vllm_harness._machine.processes import run_captured
from vllm_harness._terminal.status import Progress


def make(lock: Lock, progress: Progress) -> Environment:
    """Makes the environment of a release. Raises the same errors as `release.create`."""
    minor, executable = interpreter(lock)
    folder = folder_of(lock, minor)

    def build() -> store.Marker:
        install(lock, folder, minor, executable, progress)
        marker = store.Marker(lock.version, lock.device, lock.torch)
        progress("checking that vllm imports")
        verify(store.described(folder, marker))
        return marker

    return store.make(folder, build, progress)


def install(lock: Lock, folder: Path, minor: str, executable: Path, progress: Progress) -> None:
    """Makes a virtual environment with the packages of a lock.

    Args:
        lock: the lock to install.
        folder: the folder of the virtual environment.
        minor, executable: the version (such as `3.12`) and the path of the Python to build on.
        progress: receives a line for each step.

    Raises:
        InstallError: the packages cannot be installed.
    """
    progress(f"making {folder.name} from {lock.path.name}")
    environ = uv_environ()
    run_uv("venv", "--no-project", "--python", executable, folder, progress=progress, environ=environ)
    from_index = lock.torch.endswith("+cpu") and not _torch_offered(lock, minor)
    options = ["--no-deps", "--only-binary", ":all:", *(["--torch-backend", "cpu"] if from_index else [])]
    where = [f"--python={folder / 'bin/python'}", f"--requirements={lock.path}"]
    run_uv("pip", "install", *options, *where, progress=progress, environ=environ)


def interpreter(lock: Lock) -> tuple[str, Path]:
    """Finds the Python to build on: this one, unless only another version has a CPU torch available."""
    candidates = minors()
    if lock.torch.endswith("+cpu"):
        candidates.sort(key=lambda minor: not _torch_offered(lock, minor))
    for minor in candidates:
        if minor == ".".join(map(str, sys.version_info[:2])):
            return minor, Path(sys.executable)
        uv = run_captured(uv_path(), "python", "find", "--no-project", "--system", minor, env=uv_environ())
        if uv.returncode == 0:
            return minor, Path(uv.stdout.strip())
    raise InstallError("this machine has no Python 3.11, 3.12 or 3.13", hint="install one, or put it on PATH")


def torch_at_hand(lock: Lock) -> bool:
    """Whether a configured folder of wheels has the locked torch for any Python on which a server can run."""
    return not lock.torch.endswith("+cpu") or any(_torch_offered(lock, minor) for minor in PYTHONS)


def _torch_offered(lock: Lock, minor: str) -> bool:
    """Whether a configured folder of wheels has the locked torch for this Python and machine."""
    pattern = f"torch-{lock.torch}-cp{minor.replace('.', '')}-*_{platform.machine()}.whl"
    return any(next(folder.glob(pattern), None) for folder in find_links())
