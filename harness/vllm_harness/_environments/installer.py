"""Runs uv with the package sources from pip's configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from vllm_harness._environments.pip_settings import for_uv, pip_options
from vllm_harness._errors import HarnessError
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.processes import killed_with_parent
from vllm_harness._terminal.status import Progress


class InstallError(HarnessError):
    """uv is missing, or an installation failed."""

    of_machine = True


PIP = "pip==26.3"
FULL = r"No space left|ENOSPC|os error 28|Disk quota exceeded"
"""Matches error messages about a full disk."""

_NOT_SHOWN = ("+ ", "Activate with", "Using ")
_REMEDIES = [
    (
        FULL,
        "free disk space (`vllm-harness env list` shows what uses it), or set VLLM_HARNESS_CACHE",
    ),
    (
        r"torch.*\+cpu|\+cpu.*torch",
        "provide a CPU build of torch: let uv reach PyTorch's CPU index, or set find-links in pip's "
        "configuration (or UV_FIND_LINKS) to a folder with the wheel",
    ),
    (r"[Hh]ash mismatch", "check the package index or mirror: a package differs from the locked one"),
    (
        r"error sending request|dns error|[Cc]onnect|ENOTFOUND|ECONN|EAI_AGAIN|timed out|Failed to fetch",
        "check the network, and the package index in the configuration of pip or uv",
    ),
]


def uv_path() -> Path:
    """The uv executable beside this Python, or on PATH. Raises InstallError if there is none."""
    beside = Path(sys.executable).with_name("uv")
    path = str(beside) if beside.exists() else shutil.which("uv")
    if path is None:
        raise InstallError("uv is neither beside this Python nor on PATH", hint="pip install uv")
    return Path(path)


def uv_environ(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment variables for uv: `base`, pip's sources, and a cache from which it can make hard links."""
    environ = {"UV_PYTHON_DOWNLOADS": "never", **for_uv(base), **base}
    if "UV_CACHE_DIR" not in environ and not _same_file_system(Path.home(), cache_dir()):
        environ["UV_CACHE_DIR"] = str(cache_dir() / "uv")
    return environ


def run_uv(*arguments: str | Path, progress: Progress, environ: Mapping[str, str] | None = None) -> None:
    """Runs uv, and reports each line of its output. Raises InstallError with its last lines."""
    tail: deque[str] = deque(maxlen=12)
    with subprocess.Popen(
        # if this process is killed, uv must not write into a folder that the next process makes
        [*killed_with_parent(), str(uv_path()), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(environ or uv_environ()),
    ) as process:
        assert process.stderr is not None
        for line in filter(None, map(str.strip, process.stderr)):
            if not line.startswith(_NOT_SHOWN):
                tail.append(line)
                progress(line)
    if process.returncode:
        output = "\n    ".join(tail)
        raise InstallError(f"`uv {arguments[0]} {arguments[1]}` failed:\n    {output}", hint=remedy(output))


def download_wheels(folder: Path, *requirements: str | Path, progress: Progress) -> None:
    """Downloads wheels into a folder with `pip download`, which uv lacks. Raises InstallError."""
    pip = ("tool", "run", "--python", sys.executable, "--from", PIP, "pip", "download", "-qq")
    only = ("--no-deps", "--only-binary", ":all:", "--dest", folder)
    options = {f"PIP_{name.upper().replace('-', '_')}": value for name, value in pip_options().items()}
    run_uv(*pip, *only, *requirements, progress=progress, environ={**options, **uv_environ()})


def install_into(folder: Path, *arguments: str | Path, progress: Progress) -> Path:
    """Runs `uv pip install` into a folder unless that exists, and returns the folder. Raises InstallError."""
    with locked_for_making(folder, progress):
        if not folder.exists():
            with temporary_folder(folder.parent) as half:
                run_uv("pip", "install", f"--target={half}/packages", *arguments, progress=progress)
                (half / "packages").rename(folder)
    return folder


def remedy(output: str) -> str:
    """Finds a hint for a failed installer's output; returns an empty string if none is known."""
    return next((hint for pattern, hint in _REMEDIES if re.search(pattern, output)), "")


def find_links() -> list[Path]:
    """The local folders in which uv looks for wheels."""
    return [Path(link) for link in uv_environ().get("UV_FIND_LINKS", "").split(",") if Path(link).is_dir()]


def _same_file_system(left: Path, right: Path) -> bool:
    return left.exists() and left.stat().st_dev == right.stat().st_dev
