"""Runs commands in places that cannot be used: forks of one process that has imported the harness.

A fork makes its place itself (a full disk, a folder that may not be entered), as any user: it drops the
capabilities of root, and mounts in a name space of its own.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import subprocess
import sys
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vllm_harness._testing.skips import coded

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_USERS, _NEW_MOUNTS, _READ_ONLY = 0x10000000, 0x00020000, 1
_CAPABILITIES_V3 = 0x20080522
NO_MOUNTS = coded(
    "no-mounts", "needs user name spaces, to mount a small disk: run this test as root, or allow them"
)


@dataclass(frozen=True)
class Place:
    """Where a command runs.

    Attributes:
        environ: variables to set; `{tmp}` is a folder of the test.
        closed, unwritable: folders below it that nobody may enter, or write to.
        file: a file below it.
        disk: where a disk of 64 KiB is mounted; `full` fills it, `read_only` makes it read-only.
        inodes: how many files and folders the disk can hold, without a limit by default.
        stdout: `file`, `/dev/full`, `pipe` (without a reader) or `closed`.
        encoding: the encoding of the output.
    """

    environ: dict[str, str] = field(default_factory=dict)
    closed: str = ""
    unwritable: str = ""
    file: str = ""
    disk: str = ""
    full: bool = False
    read_only: bool = False
    inodes: int = 0
    stdout: str = "file"
    encoding: str = "utf-8"

    @classmethod
    def of_home(cls, path: str, **more: Any) -> Place:
        """A home below the folder of the test, with the folders of the harness at their defaults."""
        own = ("VLLM_HARNESS_STATE", "VLLM_HARNESS_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME")
        return cls({**dict.fromkeys(own, ""), "HOME": f"{{tmp}}/{path}"}, **more)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class Commands:
    """The process whose forks run the commands."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.cli.places"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, place: Place, tmp: Path, *arguments: str) -> Ended:
        """Runs a command in a place."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([asdict(place), str(tmp), arguments]), file=self._process.stdin, flush=True)
        return Ended(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def _serve() -> None:
    from vllm_harness.cli import commands

    for name in list(commands._places()):
        commands._command(name)
    for line in sys.stdin:
        place, tmp, arguments = json.loads(line)
        print(json.dumps(_forked(Place(**place), Path(tmp), arguments)), flush=True)


def _forked(place: Place, tmp: Path, arguments: list[str]) -> tuple[int, str, str]:
    out, error = tmp / "stdout", tmp / "stderr"
    out.touch()
    pid = os.fork()
    if not pid:
        code = 70
        try:
            code = _run(place, tmp, arguments)
            sys.stderr.flush()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, out.read_text(errors="replace"), error.read_text(errors="replace")


def _run(place: Place, tmp: Path, arguments: list[str]) -> int:
    os.dup2(os.open(tmp / "stderr", os.O_WRONLY | os.O_CREAT), 2)
    os.dup2(_stdout(place, tmp), 1)
    os.environ.update({name: value.format(tmp=tmp) for name, value in place.environ.items()})
    _make(place, tmp)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedWriter(io.FileIO(fd, "w", closefd=False)), place.encoding)
        for fd in (1, 2)
    )
    if place.stdout == "closed":
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]  # as Python does
    sys.__stdout__ = sys.stdout  # type: ignore[misc]
    sys.argv = ["vllm-harness", *arguments]
    os.chdir(tmp)
    return _exit_code()


def _exit_code() -> int:
    """Calls the command as its script does; returns the exit code that Python would end with."""
    from vllm_harness.cli.main import main

    try:
        code = main()
    except BaseException:
        with suppress(OSError):
            traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return 120
    return code


def _stdout(place: Place, tmp: Path) -> int:
    if place.stdout == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
        return writer
    return os.open(place.stdout if place.stdout == "/dev/full" else tmp / "stdout", os.O_WRONLY)


def _make(place: Place, tmp: Path) -> None:
    if place.disk:
        _mount(tmp / place.disk, place)
    if place.file:
        (tmp / place.file).touch()
    for name, mode in ((place.closed, 0), (place.unwritable, 0o555)):
        if name:
            (tmp / name).mkdir()
            (tmp / name).chmod(mode)
    if not place.disk:
        _drop_capabilities()


def _mount(folder: Path, place: Place) -> None:
    folder.mkdir()
    _name_space()
    if _LIBC.mount(
        b"none", bytes(folder), b"tmpfs", 0, f"size=64k,mode=700,nr_inodes={place.inodes}".encode()
    ):
        raise OSError(ctypes.get_errno(), "mount")
    if place.full:
        with suppress(OSError), (folder / "fill").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    if place.read_only:
        _LIBC.mount(b"none", bytes(folder), b"tmpfs", 32 | _READ_ONLY, b"")


def _name_space() -> None:
    """Enters a new mount name space, in which this process may mount."""
    user, group = os.geteuid(), os.getegid()
    if _LIBC.unshare((0 if user == 0 else _NEW_USERS) | _NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _LIBC.mount(b"none", b"/", None, 0x4000 | 0x40000, None)


def _drop_capabilities() -> None:
    """Lets modes of files count for root as for other users."""
    _LIBC.capset((ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)())


def can_mount() -> bool:
    """Whether this user can mount a disk in a name space."""
    pid = os.fork()
    if not pid:
        try:
            _name_space()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


if __name__ == "__main__":
    _serve()
