"""What Ray's own Python does on a node that has nothing of the harness: it sets it up from bundles.

This module travels to the node by value, with what it imports of the package; all that is imported here needs
the standard library alone.
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
"""The harness's cache, as a shell on the node finds it; see `cache_of`."""
SET_UP = "bundles/{}/vllm-harness"
"""Where in the cache the harness of a bundle is set up, by the bundle's identity."""
PIECE = 2**24
"""Bytes that a node receives at a time."""
_WAIT_S = 1.0
_TOLD_EVERY = 30
_LINES = 20

Manifest = dict[str, Any]
Piece = Callable[[str, int], bytes]
"""Gives what a file of a bundle has from a byte on; nothing at its end."""
Told = tuple[bool, str]
"""Whether the node cannot be set up, and a line: of progress, or why not."""


class BundleSource:
    """Gives bundles to nodes, on the machine that has them.

    Args:
        folders: of the bundles, by their identities.
    """

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders

    def piece(self, bundle: str, name: str, begin: int) -> bytes:
        """Bytes of a file of a bundle; none at its end."""
        with Path(self._folders[bundle], name).open("rb") as file:
            file.seek(begin)
            return file.read(PIECE)


def arrive(bundles: Sequence[tuple[str, Manifest]], source: Any) -> Iterator[Told]:
    """Sets a node up from bundles, each once, whatever else runs on the node.

    Args:
        bundles: the folder of each on the machine of the command, and its manifest.
        source: an actor of `BundleSource`, for a node that has no such folder.
    """
    try:
        for folder, manifest in bundles:
            for line in _set_up(Path(folder), manifest, source):
                yield False, line
    except (InstallerError, OSError) as error:
        yield True, str(error)


def _set_up(bundle: Path, manifest: Manifest, source: Any) -> Iterator[str]:
    harness = _trusted(cache_of(os.environ)) / SET_UP.format(identity(manifest))
    harness.parent.mkdir(parents=True, exist_ok=True)
    with (harness.parent / ".lock").open("w") as lock:
        yield from _locked(lock)
        if not _is_set_up(harness):
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
    """The harness's cache by these variables."""
    named = environ.get("VLLM_HARNESS_CACHE")
    user = environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(named) if named else Path(user, "vllm-harness")


def _trusted(cache: Path) -> Path:
    """The cache, made private where it is missing, from which programs are run: nobody else may write there.

    Raises InstallerError. The harness looks closer once it runs.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = cache.stat()
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & stat.S_IWOTH:
        raise InstallerError(
            f"other users may write to {cache}: name another folder in VLLM_HARNESS_CACHE when you start Ray"
        )
    return cache


def _is_set_up(harness: Path) -> bool:
    return (harness / ".venv/bin/vllm-harness").exists() and not (harness / UNFINISHED).exists()


def _is_at(bundle: Path, manifest: Manifest) -> bool:
    try:
        return read_manifest(bundle) == manifest
    except InstallerError:
        return False


def _locked(lock: IO[str]) -> Iterator[str]:
    """Takes a lock file; yields a line from time to time while another process has it."""
    waited = 0
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if waited % _TOLD_EVERY == 0:
                yield "waiting for another process that sets the same bundle up"
            waited += 1
            time.sleep(_WAIT_S)


def receive(manifest: Manifest, piece: Piece, into: Path) -> Iterator[str]:
    """Receives the files of a bundle, without the parts that are there and whole.

    Raises:
        InstallerError: there is no room, or a part does not come, or not as it was packed.
    """
    into.mkdir(exist_ok=True)
    parts = manifest["parts"]
    missing = [part for part in parts if fault_of(into / part["name"], part)]
    wanted = sum(each["size"] for each in (*missing, *manifest["files"]))
    if (free := shutil.disk_usage(into).free) < wanted:
        raise InstallerError(
            f"{into} has {free / 1e9:.1f} GB free, the bundle and its files take {wanted / 1e9:.1f} GB"
        )
    for number, part in enumerate(missing, len(parts) - len(missing) + 1):
        _fetch(piece, into / part["name"])
        if fault := fault_of(into / part["name"], part):
            raise InstallerError(f"{fault}: it did not arrive as it was packed, run the command again")
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


def _piece(source: Any, bundle: str, name: str, begin: int) -> bytes:
    """A piece from the machine of the command, by Ray's object store. Raises InstallerError."""
    import ray

    try:
        block: bytes = ray.get(source.piece.remote(bundle, name, begin))
    except ray.exceptions.RayError as error:
        why = str(error).strip().splitlines()[-1]
        raise InstallerError(f"{name} does not come from the machine of the command: {why}") from None
    return block


def _installed(bundle: Path, harness: Path) -> Iterator[str]:
    """Runs the bundle's installer; yields what it says. Raises InstallerError with its error."""
    said = deque[str](maxlen=_LINES)
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
                said.append(line.strip())
                if line.strip() and not line.startswith(" "):
                    yield line.strip().removesuffix(":")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise InstallerError(error_in(said))


def error_in(said: Sequence[str]) -> str:
    """The error that a program told, in a line: from where it begins with `error:`; else its last line."""
    begin = next((number for number, line in enumerate(said) if line.startswith("error:")), len(said) - 1)
    return " ".join(list(said)[max(0, begin) :]).removeprefix("error: ") or "its installer was killed"
