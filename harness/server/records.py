"""Records of running servers, so that a later run can clear away what an earlier one could not."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from harness.paths import state_dir
from harness.server.process_tree import kill_in

KEPT_RUNS = 40


@dataclass(frozen=True)
class ServerRecord:
    """One running server.

    Attributes:
        server_id: name of the record.
        supervisor: process id of its supervisor, with `supervisor_started` (seconds since the epoch) to tell
            it from a later process of the same id.
        tmp: its temporary folder, the working folder of its processes.
        name, lane, environment, log: for people.
        port, pid: of its API server.
        identity: what it serves and how, for a later run to find it again; see `kept`.
        kept: whether it outlives the run that started it.
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

    def path(self) -> Path:
        """Where the record stands."""
        return records_folder() / f"{self.server_id}.json"

    def write(self) -> None:
        """Keeps the record until `remove`."""
        self.path().write_text(json.dumps(asdict(self)))

    def remove(self) -> None:
        """Drops the record."""
        self.path().unlink(missing_ok=True)

    def supervisor_lives(self) -> bool:
        """Whether its supervisor still runs."""
        with suppress(psutil.NoSuchProcess):
            return abs(psutil.Process(self.supervisor).create_time() - self.supervisor_started) < 1
        return False


def sweep() -> list[ServerRecord]:
    """Ends servers whose supervisor was killed, removes their temporary folders; returns their records."""
    swept = []
    for path in sorted(records_folder().glob("*.json")):
        try:
            record = ServerRecord(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            path.unlink(missing_ok=True)
            continue
        if not record.supervisor_lives():
            kill_in(record.tmp)
            shutil.rmtree(record.tmp, ignore_errors=True)
            record.remove()
            swept.append(record)
    return swept


def running() -> list[ServerRecord]:
    """The servers that run now, of this user's runs."""
    found = []
    for path in sorted(records_folder().glob("*.json")):
        with suppress(OSError, ValueError, TypeError):
            record = ServerRecord(**json.loads(path.read_text()))
            if record.supervisor_lives():
                found.append(record)
    return found


def run_folder() -> Path:
    """The folder of this process's logs; older ones are removed beyond the newest 40."""
    global _RUN
    if _RUN is None:
        runs = state_dir() / "runs"
        runs.mkdir(exist_ok=True)
        for old in sorted(path for path in runs.iterdir() if path.is_dir())[:-KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)
        _RUN = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    _RUN.mkdir(exist_ok=True)
    return _RUN


_RUN: Path | None = None


def records_folder() -> Path:
    """Where the records stand."""
    folder = state_dir() / "servers"
    folder.mkdir(exist_ok=True)
    return folder
