"""Sets up a cluster node that has Python and Ray but no harness, from bundles.

Ray pickles this module by value and sends it to the node, with the modules of the harness that it imports.
All of them need only the standard library.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from vllm_harness._machine.processes import killed_with_parent
from vllm_harness.extras.bundles.install import (
    MANIFEST,
    UNFINISHED,
    InstallerError,
    fault_of,
    identity,
    read_manifest,
)
from vllm_harness.extras.bundles.packages import see_packages

CACHE = "${VLLM_HARNESS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vllm-harness}"
"""The path of the harness's cache folder, to be expanded by a shell on the node; see `cache_of`."""
HARNESS_FOLDER = "bundles/{}/vllm-harness"
"""The folder of a bundle's harness in the cache; the placeholder is the bundle's identity."""
PIECE = 2**24
"""The number of bytes that a node receives at a time."""
_WAIT_S = 1.0
_REPORT_EVERY = 30
_LINES = 20

Manifest = dict[str, Any]
Piece = Callable[[str, int], bytes]
"""Returns the next bytes of a bundle's file from an offset; empty at the end of the file."""
Step = tuple[bool, str]
"""Whether the setup failed, and a line that describes the progress or the reason for the failure."""


class BundleSource:
    """Sends bundles to nodes, from the machine on which the bundles are.

    Args:
        folders: maps the identity of a bundle to its folder.
    """

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders

    def piece(self, bundle: str, name: str, offset: int) -> bytes:
        """Returns the next bytes of a bundle's file from an offset; empty at the end of the file."""
        with Path(self._folders[bundle], name).open("rb") as file:
            file.seek(offset)
            return file.read(PIECE)


def set_up_node(bundles: Sequence[tuple[str, Manifest]], source: Any) -> Iterator[Step]:
    """Sets up a node from bundles; installs each only once, even if several processes set up the node.

    Args:
        bundles: the folder of each bundle on the machine that runs the command, and its manifest.
        source: a Ray actor of the class `BundleSource`, for a node that does not have the folder.

    Yields:
        The steps; if the setup fails, the last step is the failure.
    """
    try:
        for folder, manifest in bundles:
            for line in _set_up(Path(folder), manifest, source):
                yield False, line
    except (InstallerError, OSError) as error:
        yield True, str(error)


def _set_up(bundle: Path, manifest: Manifest, source: Any) -> Iterator[str]:
    harness = _trusted(cache_of(os.environ)) / HARNESS_FOLDER.format(identity(manifest))
    harness.parent.mkdir(parents=True, exist_ok=True)
    with (harness.parent / ".lock").open("w") as lock:
        yield from _locked(lock)
        if not (harness / ".venv/bin/vllm-harness").exists() or (harness / UNFINISHED).exists():
            received = harness.with_name("received")
            if not _is_at(bundle, manifest):
                piece = partial(_piece, source, identity(manifest))
                yield from receive(manifest, piece, received)
                bundle = received
            yield from _installed(bundle, harness)
            shutil.rmtree(received, ignore_errors=True)
        packages = [folder for folder in sys.path if folder.endswith("-packages")]
        see_packages(packages, harness / ".venv", "ray.pth")


def cache_of(environ: Mapping[str, str]) -> Path:
    """Returns the harness's cache folder according to environment variables."""
    named = environ.get("VLLM_HARNESS_CACHE")
    user = environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(named) if named else Path(user, "vllm-harness")


def _trusted(cache: Path) -> Path:
    """Creates a private cache folder if it is missing. Raises InstallerError if other users may write to it.

    Programs run from the folder, so only its owner may write. The harness later makes further checks.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = cache.stat()
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH:
        raise InstallerError(
            f"other users may write to {cache}: name another folder in VLLM_HARNESS_CACHE when you start Ray"
        )
    return cache


def _is_at(bundle: Path, manifest: Manifest) -> bool:
    try:
        return read_manifest(bundle) == manifest
    except InstallerError:
        return False


def _locked(lock: IO[str]) -> Iterator[str]:
    """Locks a file; yields a progress line now and then while another process holds the lock."""
    waited = 0
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if waited % _REPORT_EVERY == 0:
                yield "waiting for another process that installs the same bundle"
            waited += 1
            time.sleep(_WAIT_S)


def receive(manifest: Manifest, piece: Piece, into: Path) -> Iterator[str]:
    """Receives a bundle's files, except for parts that are already complete; yields progress lines.

    Args:
        manifest: the manifest of the bundle.
        piece: returns the next bytes of a file.
        into: the folder in which to store the files.

    Raises:
        InstallerError: the disk has too little space, or a part arrives damaged or not at all.
    """
    into.mkdir(exist_ok=True)
    parts = manifest["parts"]
    missing = [part for part in parts if fault_of(into / part["name"], part)]
    size = sum(file["size"] for file in (*missing, *manifest["files"]))
    if (free := shutil.disk_usage(into).free) < size:
        raise InstallerError(
            f"{into} has {free / 1e9:.1f} GB free, but the bundle and its files take {size / 1e9:.1f} GB"
        )
    for number, part in enumerate(missing, len(parts) - len(missing) + 1):
        _fetch(piece, into / part["name"])
        if fault := fault_of(into / part["name"], part):
            raise InstallerError(f"{fault}: it was damaged in transit; run the command again")
        if number % max(1, len(parts) // 10) == 0 or number == len(parts):
            yield f"received {number} of {len(parts)} parts"
    for name in ("install.py", MANIFEST):
        _fetch(piece, into / name)


def _fetch(piece: Piece, path: Path) -> None:
    half = path.with_name(f".{path.name}.half")
    with half.open("wb") as file:
        while block := piece(path.name, file.tell()):
            file.write(block)
    half.replace(path)


def _piece(source: Any, bundle: str, name: str, offset: int) -> bytes:
    """Gets bytes from the machine that runs the command, through Ray. Raises InstallerError if Ray fails."""
    import ray

    try:
        block: bytes = ray.get(source.piece.remote(bundle, name, offset))
    except ray.exceptions.RayError as error:
        why = str(error).strip().splitlines()[-1]
        raise InstallerError(f"the machine of the command did not send {name}: {why}") from None
    return block


def _installed(bundle: Path, harness: Path) -> Iterator[str]:
    """Runs the bundle's installer and yields its output lines. Raises InstallerError if it fails."""
    output = deque[str](maxlen=_LINES)
    command = [*killed_with_parent(), sys.executable, str(bundle / "install.py"), str(harness)]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                output.append(line.strip())
                if line.strip() and not line.startswith(" "):
                    yield line.strip().removesuffix(":")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise InstallerError(error_in(output))


def error_in(output: Sequence[str]) -> str:
    """Returns the error in a program's output as one line: all from the first `error:`, or the last line."""
    first = next((number for number, line in enumerate(output) if line.startswith("error:")), len(output) - 1)
    return " ".join(list(output)[max(0, first) :]).removeprefix("error: ") or "its installer was killed"
