"""Running uv, with what pip's configuration says about this machine's package sources passed on to it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from harness.environments.progress import Progress
from harness.errors import HarnessError
from harness.paths import cache_dir


class InstallError(HarnessError):
    """uv is missing or could not do what was asked."""


# pip's option -> uv's variable; an index that uv was told of already wins
_PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "no-index": "UV_NO_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
_UNSAID = ("+ ", "Activate with", "Using ")
_COMMA_SEPARATED = {"find-links"}

_REMEDIES = [
    (
        r"No space left",
        "free disk space (`vllm-harness env list` shows what takes it), or set VLLM_HARNESS_CACHE",
    ),
    (
        r"torch.*\+cpu|\+cpu.*torch",
        "a CPU build of torch is needed: let uv reach PyTorch's CPU index, or name a folder that has "
        "the wheel as find-links in pip's configuration (or in UV_FIND_LINKS)",
    ),
    (r"[Hh]ash mismatch", "a package is not the one that was locked: check the package index or mirror"),
    (
        r"error sending request|dns error|[Cc]onnect|timed out|Failed to fetch",
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
    environ = {"UV_PYTHON_DOWNLOADS": "never", **base}
    for option, value in pip_options().items():
        variable = _PIP_TO_UV.get(option)
        if variable and variable not in base:
            environ[variable] = re.sub(r"\s+", ",", value.strip()) if option in _COMMA_SEPARATED else value
    if (
        "UV_EXTRA_INDEX_URL" in environ
    ):  # pip's way of choosing among indexes; hashes say which file is the right one
        environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    if "UV_CACHE_DIR" not in environ and not _same_file_system(Path.home(), cache_dir()):
        environ["UV_CACHE_DIR"] = str(cache_dir() / "uv")
    return environ


def run_uv(*arguments: str | Path, progress: Progress, environ: Mapping[str, str] | None = None) -> None:
    """Runs `uv ARGUMENTS`; each line it says is progress. Raises InstallError with its last words."""
    command = [str(uv_path()), *map(str, arguments)]
    tail: deque[str] = deque(maxlen=12)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(environ or uv_environ()),
    ) as process:
        assert process.stderr is not None
        for line in filter(None, map(str.strip, process.stderr)):
            tail.append(line)
            if not line.startswith(_UNSAID):
                progress(line)
    if process.returncode:
        said = "\n    ".join(tail)
        raise InstallError(f"`uv {' '.join(command[1:3])}` failed:\n    {said}", hint=remedy(said))


def remedy(said: str) -> str:
    """What to try, from what an installer said; empty where nothing is known."""
    return next((hint for pattern, hint in _REMEDIES if re.search(pattern, said)), "")


def find_links() -> list[Path]:
    """The local folders of wheels that uv will look into."""
    return [Path(link) for link in uv_environ().get("UV_FIND_LINKS", "").split(",") if Path(link).is_dir()]


@cache
def pip_options() -> dict[str, str]:
    """What pip is configured with, option -> value: environment over command over global, as pip has it."""
    for pip in _pips():
        listed = subprocess.run(
            [*pip, "config", "list"], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if listed.returncode == 0:
            return dict(_parsed(listed.stdout))
    return {}


def _pips() -> Iterator[list[str]]:
    for python in dict.fromkeys((sys.executable, getattr(sys, "_base_executable", sys.executable))):
        yield [python, "-m", "pip"]
    if found := shutil.which("pip"):
        yield [found]


def _parsed(listing: str) -> Iterator[tuple[str, str]]:
    entries = [
        match.groups() for match in re.finditer(r"^(global|install|:env:)\.([\w.-]+)=(.+)$", listing, re.M)
    ]
    rank = {"global": 0, "install": 1, ":env:": 2}
    for _, option, value in sorted(entries, key=lambda entry: rank[entry[0]]):
        yield option.lstrip("."), str(ast.literal_eval(value))


def _same_file_system(one: Path, other: Path) -> bool:
    return one.exists() and one.stat().st_dev == other.stat().st_dev
