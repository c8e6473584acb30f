"""Releases: isolated interpreters made from a lock, under the cache folder.

An environment is complete when its marker file is there: the marker is written last, so a half-made one is
never taken for a good one. The folder is named by version, device, Python and a hash of the lock.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.environments.installer import InstallError, find_links, run_uv, uv_environ, uv_path
from harness.environments.locking import one_maker
from harness.environments.locks import Lock, lock_for
from harness.environments.metadata import stub_metadata
from harness.environments.progress import Progress, quiet
from harness.environments.spec import Device, Environment
from harness.errors import HarnessError, UsageError
from harness.paths import cache_dir

_MARKER = "vllm-harness.json"
_PYTHONS = ("3.11", "3.12", "3.13")

_VERIFY = """
import json, torch, vllm
from vllm.platforms import current_platform
current_platform.import_kernels()
print(json.dumps({"vllm": vllm.__version__, "torch": torch.__version__,
                  "device": current_platform.device_type, "kernels": hasattr(torch.ops._C, "rms_norm")}))
"""


class MissingEnvironmentError(HarnessError):
    """The release is not made yet."""


class BrokenEnvironmentError(HarnessError):
    """vLLM does not import in the environment, or is not the version or build that was asked for."""


@dataclass(frozen=True)
class Made:
    """An environment's folder on this machine; `environment` is None where it was left half-made."""

    folder: Path
    environment: Environment | None

    def sizes(self) -> tuple[int, int]:
        """Bytes in all, and of its own: what removing it frees, the rest being links into uv's cache."""
        stats = [path.lstat() for path in self.folder.rglob("*") if not path.is_dir()]
        return sum(s.st_blocks for s in stats) * 512, sum(s.st_blocks for s in stats if s.st_nlink == 1) * 512


def root() -> Path:
    """The folder of all release environments."""
    return cache_dir() / "environments"


def find(version: str, device: Device) -> Environment:
    """The made environment of a release. Raises UsageError (no lock), MissingEnvironmentError."""
    lock = lock_for(version, device)
    for minor in _minors():
        if environment := _read(_folder(lock, minor)):
            return environment
    raise MissingEnvironmentError(
        f"the environment of vLLM {version} ({device}) is not made yet",
        hint=f"vllm-harness env create {version} --device {device}",
    )


def create(version: str, device: Device, *, progress: Progress = quiet) -> Environment:
    """The environment of a release, made now unless it is there.

    Raises UsageError (no lock), InstallError (no package, no network, no space), BrokenEnvironmentError.
    """
    try:
        return find(version, device)
    except MissingEnvironmentError:
        lock = lock_for(version, device)
    folder = _folder(lock, _interpreter(lock)[0])
    with one_maker(folder, progress):
        if made := _read(folder):
            return made
        shutil.rmtree(folder, ignore_errors=True)
        try:
            return _make(lock, folder, progress)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def verify(environment: Environment) -> dict[str, object]:
    """Imports vllm in an environment; gives versions and platform. Raises BrokenEnvironmentError."""
    answer = environment.run("-c", _VERIFY)
    if answer.returncode:
        last = "\n    ".join(answer.stderr.strip().splitlines()[-4:])
        raise BrokenEnvironmentError(
            f"`import vllm` fails in {environment.python}:\n    {last}", hint=_again(environment)
        )
    found: dict[str, object] = json.loads(answer.stdout.strip().splitlines()[-1])
    if (
        str(found["vllm"]).partition("+")[0] != environment.vllm_version
        or found["device"] != environment.device
    ):
        raise BrokenEnvironmentError(
            f"{environment.describe()} turns out to be vLLM {found['vllm']} on {found['device']}",
            hint=_again(environment),
        )
    if not found["kernels"]:
        raise BrokenEnvironmentError(
            f"vLLM's kernels do not load in {environment.python} (torch {found['torch']})",
            hint=f"they were built for another torch, or this processor lacks AVX2; {_again(environment)}",
        )
    return found


def made() -> Iterator[Made]:
    """The environments on this machine, half-made and outdated ones included."""
    if root().exists():
        for folder in sorted(path for path in root().iterdir() if path.is_dir()):
            yield Made(folder, _read(folder))


def remove(name: str) -> Path:
    """Removes an environment by its folder's name. Raises UsageError naming those there are."""
    known = [entry.folder.name for entry in made()]
    if name not in known:
        raise UsageError(f"no environment {name}", hint=f"one of: {', '.join(known) or 'none is made'}")
    with one_maker(root() / name, quiet):
        (root() / name / _MARKER).unlink(missing_ok=True)
        shutil.rmtree(root() / name)
    return root() / name


def _make(lock: Lock, folder: Path, progress: Progress) -> Environment:
    minor, executable = _interpreter(lock)
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
    environment = _environment(folder, lock.version, lock.device, lock.torch)
    progress("checking that vllm imports")
    verify(environment)
    half = folder / f"{_MARKER}.half"
    half.write_text(json.dumps({"vllm_version": lock.version, "device": lock.device, "torch": lock.torch}))
    half.replace(folder / _MARKER)
    return environment


def _read(folder: Path) -> Environment | None:
    try:
        return _environment(folder, **json.loads((folder / _MARKER).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _environment(folder: Path, vllm_version: str, device: Device, torch: str) -> Environment:
    config = (folder / "pyvenv.cfg").read_text()
    found = re.search(r"^version_info = (\S+)", config, re.M)
    return Environment(
        kind="release",
        python=folder / "bin/python",
        python_version=found.group(1) if found else "unknown",
        vllm_version=vllm_version,
        device=device,
        torch=torch,
        pythonpath=[stub_metadata(vllm_version)] if device == "cpu" else [],
    )


def _folder(lock: Lock, minor: str) -> Path:
    return root() / f"{lock.name}-py{minor}-{lock.digest}"


def _minors() -> list[str]:
    """The Python versions a server may run on, the one now running first."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return sorted(_PYTHONS, key=lambda minor: minor != running)


def _interpreter(lock: Lock) -> tuple[str, Path]:
    """The Python to build on: the one now running, unless a CPU torch is at hand for another one only."""
    minors = _minors()
    if lock.torch.endswith("+cpu"):
        minors.sort(key=lambda minor: not _torch_offered(lock, minor))
    for minor in minors:
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
    raise InstallError("no Python 3.11 to 3.13 was found", hint="install one of them")


def torch_at_hand(lock: Lock) -> bool:
    """Whether a configured folder of wheels has the locked torch for a Python that a server may run on."""
    return not lock.torch.endswith("+cpu") or any(_torch_offered(lock, minor) for minor in _PYTHONS)


def _torch_offered(lock: Lock, minor: str) -> bool:
    """Whether a configured folder of wheels has the locked torch for this Python and machine."""
    pattern = f"torch-{lock.torch}-cp{minor.replace('.', '')}-*_{platform.machine()}.whl"
    return any(next(folder.glob(pattern), None) for folder in find_links())


def _again(environment: Environment) -> str:
    if environment.kind == "installed":
        return "reinstall vLLM there, or use a release: vllm-harness env create 0.32.0 --device cpu"
    return f"vllm-harness env remove {environment.python.parent.parent.name}, then env create"
