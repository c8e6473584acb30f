"""Records of running servers, so that a later run can clear what an earlier run left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path

import psutil

from vllm_harness._files.paths import state_dir
from vllm_harness._server import blocks
from vllm_harness._server.process_tree import clear, ids_alive
from vllm_harness._server.supervisor import started

KEPT_RUNS, KEPT_S = 40, 86_400.0
KEPT_BYTES = 8 * 2**30
_WRITER = re.compile(r"\.(?P<pid>\d+)-(?P<since>\d+)\.half$")


@dataclass(frozen=True)
class ServerRecord:
    """The record of a server, from before anything of it exists until nothing is left.

    Attributes:
        server_id: name of the record, of the server's folder and of its shared memory.
        supervisor: process id of its supervisor, 0 before there is one, with `supervisor_started` to tell it
            from a later process of the same id; see `supervisor.started`.
        tmp: its temporary folder, the working folder of its processes.
        name, lane, environment, log: for display.
        port, pid: of its API server.
        identity: hash of what it serves and how, by which a later run finds it; see `kept`.
        kept: whether it outlives the run that started it.
        owner: process id of the run that started it, with `owner_started`.
        earlier_blocks: shared memory from before the server.
    """

    server_id: str
    supervisor: int
    supervisor_started: float
    tmp: str
    name: str
    lane: str
    environment: str
    log: str
    port: int
    pid: int
    identity: str = ""
    kept: bool = False
    owner: int = 0
    owner_started: int = 0
    earlier_blocks: list[str] = field(default_factory=list)

    def path(self) -> Path:
        """The record's file."""
        return records_folder() / f"{self.server_id}.json"

    def write(self) -> None:
        """Writes the record by a rename: readers see all of it, or the record before."""
        writer = os.getpid()
        half = self.path().with_suffix(f".{writer}-{started(writer)}.half")
        half.write_text(json.dumps(asdict(self)))
        half.replace(self.path())

    def remove(self) -> None:
        """Removes the record."""
        self.path().unlink(missing_ok=True)

    def supervisor_lives(self) -> bool:
        """Whether its supervisor runs."""
        return _lives(self.supervisor, self.supervisor_started)

    def clear(self) -> list[int]:
        """Ends and removes what is left of the server; returns ids of processes that survive."""
        left = clear(self.server_id, self.tmp, self.earlier_blocks)
        self.remove()
        return left


def sweep() -> list[ServerRecord]:
    """Clears servers whose supervisor and owner are gone; returns their records.

    Shared memory of servers without a record is removed as well, once it is old and no process maps it.
    """
    swept = []
    for path in _records():
        try:
            written = json.loads(path.read_text())
            if _is_in_use(written):
                continue
            record = ServerRecord(**written)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError):
            path.unlink(missing_ok=True)
            continue
        record.clear()
        swept.append(record)
    _sweep_halves()
    if orphans := blocks.orphans(path.stem for path in _records()):
        alive = ids_alive()
        blocks.remove(name for name in orphans if blocks.server_of(name) not in alive)
    return swept


def _is_in_use(written: object) -> bool:
    """Whether supervisor or owner of a record, of any version, live; they clear their server themselves."""
    return isinstance(written, dict) and any(
        _lives(written.get(role), written.get(f"{role}_started")) for role in ("supervisor", "owner")
    )


def _lives(pid: object, since: object) -> bool:
    """Whether the process that was started then still runs."""
    return isinstance(pid, int) and since is not None and started(pid) == since


def running() -> list[ServerRecord]:
    """The servers of this user that run now."""
    found = []
    for path in _records():
        with suppress(OSError, ValueError, TypeError):
            record = ServerRecord(**json.loads(path.read_text()))
            if record.supervisor_lives():
                found.append(record)
    return found


def await_end_of(owner: int, wait_s: float = 30.0) -> None:
    """Waits until the servers of an owner that was killed have ended, and clears what is left of them."""
    deadline = time.monotonic() + wait_s
    while any(record.owner == owner for record in running()) and time.monotonic() < deadline:
        time.sleep(0.05)
    sweep()


def _records() -> list[Path]:
    return sorted(records_folder().glob("*.json"))


def _sweep_halves() -> None:
    """Removes half-written records of processes that were killed; their names say whose they are."""
    for half in records_folder().glob("*.half"):
        writer = _WRITER.search(half.name)
        if not (writer and _lives(int(writer["pid"]), int(writer["since"]))):
            half.unlink(missing_ok=True)


def run_folder() -> Path:
    """The folder of this process's logs.

    Of older ones those are removed that are too many, or too big, unless their process goes on.
    """
    global _RUN
    if _RUN is None:
        runs = state_dir() / "runs"
        runs.mkdir(exist_ok=True)
        for old in _beyond_bounds(runs):
            if not _goes_on(old):
                shutil.rmtree(old, ignore_errors=True)
        _RUN = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    _RUN.mkdir(exist_ok=True)
    return _RUN


def _beyond_bounds(runs: Path) -> list[Path]:
    """The folders that are too many or too big.

    Too many are those beyond the newest KEPT_RUNS that are older than KEPT_S, since one command may make
    hundreds; too big those beyond the newest that hold KEPT_BYTES together.
    """
    newest_first = sorted((path for path in runs.iterdir() if path.is_dir()), reverse=True)
    sizes = accumulate(map(_bytes_in, newest_first))
    return [
        folder
        for number, (folder, size) in enumerate(zip(newest_first, sizes, strict=True))
        if size > KEPT_BYTES or (number >= KEPT_RUNS and _age_s(folder) > KEPT_S)
    ]


def _age_s(folder: Path) -> float:
    """How long ago a folder got its last file; any time, where another process has removed it."""
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return KEPT_S


def _goes_on(folder: Path) -> bool:
    """Whether the process that a run folder is named after is alive."""
    pid = folder.name.rpartition("-")[2]
    return pid.isdecimal() and psutil.pid_exists(int(pid))


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process is removing it
            total += path.lstat().st_size
    return total


_RUN: Path | None = None


def records_folder() -> Path:
    """The folder of the records."""
    folder = state_dir() / "servers"
    folder.mkdir(exist_ok=True)
    return folder
