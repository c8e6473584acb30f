"""Records of running servers, so that a later run can clear what an earlier run left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import accumulate, count
from pathlib import Path

import psutil

from vllm_harness._exchange.endpoint import LOCAL, Endpoint, served_at
from vllm_harness._files.paths import state_dir
from vllm_harness._server import blocks
from vllm_harness._server.process_tree import clear, ids_alive
from vllm_harness._server.supervisor import started

KEPT_RUNS, KEPT_S = 40, 86_400.0
KEPT_BYTES = 8 * 2**30
_WRITER = re.compile(r"\.(?P<pid>\d+)-(?P<since>\d+)\.half$")


@dataclass(frozen=True, kw_only=True)
class ServerRecord:
    """A server's record: written before any part of the server exists, removed when nothing is left of it.

    Attributes:
        server_id: id in the names of the record, of the server's folder and of its shared memory.
        supervisor: process id of the supervisor; 0 while there is none.
        supervisor_started: when the supervisor was started; see `supervisor.started`.
        tmp: temporary folder, in which the server's processes work.
        name, lane, environment, log: name, lane, environment and log path of the server, for display.
        host, port, pid: the address on which the API server listens, its port and its process id.
        certificate: path of its TLS certificate; empty without TLS.
        identity: hash by which a later run finds the server; see `reusable.identity`.
        kept: whether the server outlives the run that started it.
        owner, owner_started: process id and start time of the run that started it.
        earlier_blocks: shared memory blocks that existed before the server.
    """

    server_id: str
    supervisor: int = 0
    supervisor_started: int = 0
    tmp: str
    name: str
    lane: str
    environment: str
    log: str
    host: str = LOCAL
    port: int
    pid: int = 0
    certificate: str = ""
    identity: str = ""
    kept: bool = False
    owner: int = 0
    owner_started: int = 0
    earlier_blocks: list[str] = field(default_factory=list)

    @property
    def endpoint(self) -> Endpoint:
        """The server's address, without its key."""
        return served_at(self.host, self.port, self.certificate)

    def path(self) -> Path:
        """The path of the record's file."""
        return records_folder() / f"{self.server_id}.json"

    def write(self) -> None:
        """Writes the record with a rename, so that readers see either the whole new record or the old one."""
        writer = os.getpid()
        half = self.path().with_suffix(f".{writer}-{started(writer)}.half")
        half.write_text(json.dumps(asdict(self)))
        half.replace(self.path())

    def remove(self) -> None:
        """Removes the record's file."""
        self.path().unlink(missing_ok=True)

    def supervisor_lives(self) -> bool:
        """Whether the server's supervisor is running."""
        return _lives(self.supervisor, self.supervisor_started)

    def clear(self) -> list[int]:
        """Ends the server's remaining processes and removes its files; returns the ids of survivors."""
        left = clear(self.server_id, self.tmp, self.earlier_blocks)
        self.remove()
        return left


def sweep() -> list[ServerRecord]:
    """Clears all servers whose supervisor and owner are gone; returns their records.

    Also removes shared memory of servers without a record, if it is old and no process maps it.
    """
    swept = []
    for path in _records():
        try:
            written = json.loads(path.read_text())
            if _is_in_use(written):
                continue
            record = ServerRecord(**written)
        except OSError:  # it is gone, or the record of a running server cannot be read now
            continue
        except (ValueError, TypeError):
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
    """Whether the supervisor or owner in a record (of any version) is running and will clear the server."""
    return isinstance(written, dict) and any(
        _lives(written.get(role), written.get(f"{role}_started")) for role in ("supervisor", "owner")
    )


def _lives(pid: object, since: object) -> bool:
    """Whether the process with this id and start time is still running."""
    return isinstance(pid, int) and since is not None and started(pid) == since


def running() -> list[ServerRecord]:
    """The running servers of this user."""
    records = []
    for path in _records():
        with suppress(OSError, ValueError, TypeError):
            record = ServerRecord(**json.loads(path.read_text()))
            if record.supervisor_lives():
                records.append(record)
    return records


def _records() -> list[Path]:
    return sorted(records_folder().glob("*.json"))


def _sweep_halves() -> None:
    """Removes half-written records whose writer, identified by the file name, was killed."""
    for half in records_folder().glob("*.half"):
        writer = _WRITER.search(half.name)
        if not (writer and _lives(int(writer["pid"]), int(writer["since"]))):
            half.unlink(missing_ok=True)


def run_folder() -> Path:
    """The folder for this process's logs; the first call removes old folders of ended processes."""
    global _RUN
    if _RUN is None:
        runs = state_dir() / "runs"
        runs.mkdir(exist_ok=True)
        for old in _beyond_limits(runs):
            if not _process_runs(old):
                shutil.rmtree(old, ignore_errors=True)
        _RUN = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    _RUN.mkdir(exist_ok=True)
    return _RUN


def new_log(folder: Path, stem: str) -> Path:
    """Makes an empty log file in a folder, readable by this user only, with a number in its name."""
    for path in (folder / f"{stem}-{number}.log" for number in count(1)):
        with suppress(FileExistsError):  # another process of this run may start servers too
            path.touch(mode=0o600, exist_ok=False)
            break
    return path


def _beyond_limits(runs: Path) -> list[Path]:
    """The folders that exceed the limits on number or size.

    These are the ones beyond the newest KEPT_RUNS that are older than KEPT_S (since one command may make
    hundreds), and the ones after the newest that together reach KEPT_BYTES.
    """
    newest_first = sorted((path for path in runs.iterdir() if path.is_dir()), reverse=True)
    sizes = accumulate(map(_bytes_in, newest_first))
    return [
        folder
        for number, (folder, size) in enumerate(zip(newest_first, sizes, strict=True))
        if size > KEPT_BYTES or (number >= KEPT_RUNS and _age_s(folder) > KEPT_S)
    ]


def _age_s(folder: Path) -> float:
    """Seconds since the last file was added to a folder; KEPT_S if another process has removed it."""
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return KEPT_S


def _process_runs(folder: Path) -> bool:
    """Whether the process whose id is in the name of a run folder is alive."""
    pid = folder.name.rpartition("-")[2]
    return pid.isdecimal() and psutil.pid_exists(int(pid))


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process is removing the file
            total += path.lstat().st_size
    return total


_RUN: Path | None = None


def records_folder() -> Path:
    """The folder that contains the records."""
    folder = state_dir() / "servers"
    folder.mkdir(exist_ok=True)
    return folder
