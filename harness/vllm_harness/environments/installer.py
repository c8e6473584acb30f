"""Running uv, with what pip's configuration says about this machine's package sources passed on to it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from vllm_harness.environments.pip_settings import for_uv
from vllm_harness.errors import HarnessError
from vllm_harness.files.locking import half_made, locked_for_making
from vllm_harness.files.paths import cache_dir
from vllm_harness.terminal.status import Progress


class InstallError(HarnessError):
    """uv is missing or could not do what was asked."""


FULL = r"No space left|ENOSPC|os error 28|Disk quota exceeded"
"""What programs say when the disk is full."""

_UNSAID = ("+ ", "Activate with", "Using ")
_REMEDIES = [
    (
        FULL,
        "free disk space (`vllm-harness env list` shows what takes it), or set VLLM_HARNESS_CACHE",
    ),
    (
        r"torch.*\+cpu|\+cpu.*torch",
        "a CPU build of torch is needed: let uv reach PyTorch's CPU index, or name a folder that has "
        "the wheel as find-links in pip's configuration (or in UV_FIND_LINKS)",
    ),
    (r"[Hh]ash mismatch", "a package is not the one that was locked: check the package index or mirror"),
    (
        r"error sending request|dns error|[Cc]onnect|ENOTFOUND|ECONN|EAI_AGAIN|timed out|Failed to fetch",
        "check the network and the package index that pip or uv is configured with",
    ),
]


def uv_path() -> Path:
    """uv's executable: the one installed with the harness, else one on PATH. Raises InstallError."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise InstallError("uv was not found beside this Python nor on PATH", hint="pip install uv")
    return Path(found)


def uv_environ(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment for uv: `base`, pip's configured sources, and a cache it can hard-link from."""
    environ = {"UV_PYTHON_DOWNLOADS": "never", **for_uv(base), **base}
    if "UV_CACHE_DIR" not in environ and not _same_file_system(Path.home(), cache_dir()):
        environ["UV_CACHE_DIR"] = str(cache_dir() / "uv")
    return environ


def run_uv(*arguments: str | Path, progress: Progress, environ: Mapping[str, str] | None = None) -> None:
    """Runs `uv ARGUMENTS`; each line it says is progress. Raises InstallError with its last words."""
    tail: deque[str] = deque(maxlen=12)
    with subprocess.Popen(
        [*_ending_with_us(), str(uv_path()), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(environ or uv_environ()),
    ) as process:
        assert process.stderr is not None
        for line in filter(None, map(str.strip, process.stderr)):
            if not line.startswith(_UNSAID):
                tail.append(line)
                progress(line)
    if process.returncode:
        said = "\n    ".join(tail)
        raise InstallError(f"`uv {arguments[0]} {arguments[1]}` failed:\n    {said}", hint=remedy(said))


def package_folder(package: str, python: str | Path, version: str, progress: Progress) -> Path:
    """A package with what it needs in a folder of its own, for PYTHONPATH: no environment changes by it.

    Args:
        package: with its version, `name==1.2`.
        python, version: the interpreter that will import it.

    Raises:
        InstallError: it cannot be had.
    """
    folder = cache_dir() / f"{package.replace('==', '-')}-py{version}"
    with locked_for_making(folder, progress):
        if not folder.exists():
            with half_made(folder) as half:
                run_uv("pip", "install", "--python", python, "--target", half, package, progress=progress)
                half.rename(folder)
    return folder


def remedy(said: str) -> str:
    """What to try, from what an installer said; empty where nothing is known."""
    return next((hint for pattern, hint in _REMEDIES if re.search(pattern, said)), "")


def find_links() -> list[Path]:
    """The local folders of wheels that uv will look into."""
    return [Path(link) for link in uv_environ().get("UV_FIND_LINKS", "").split(",") if Path(link).is_dir()]


def _ending_with_us() -> list[str]:
    """So that a uv whose maker was killed does not go on writing where the next maker is at work."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def _same_file_system(one: Path, other: Path) -> bool:
    return one.exists() and one.stat().st_dev == other.stat().st_dev
