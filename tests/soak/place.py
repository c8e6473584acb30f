"""The folders in which a soak runs its commands, away from the user's, and what the commands leave there."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from tests.faults.descendants import Descendants
from tests.faults.leftovers import Machine, pids_below
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.gpus import gpus, wait_for_memory

ROOT = Path(__file__).parents[2]
PR_SET_CHILD_SUBREAPER = 36
GONE_WITHIN_S = 60
LINGER_S = 60
"""How long a fork server outlives its last user, as after a kill of the soak itself."""
PYTESTS = "pytest-of-"


class Place:
    """A folder with a state folder and a temporary folder for commands, which nothing else uses.

    Args:
        folder: an empty folder with a short path, because the paths of sockets below it are limited.
    """

    def __init__(self, folder: Path) -> None:
        self.state, self.tmp, self.work = (folder / name for name in ("state", "tmp", "work"))
        self._folder = folder
        for made in (self.state, self.tmp, self.work, folder / "runtime"):
            made.mkdir(mode=0o700)
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.processes = Descendants(os.getpid(), self.state)
        self.own: list[subprocess.Popen[bytes]] = []
        self.apart: list[subprocess.Popen[bytes]] = []
        self.ports: set[int] = set()
        self._outputs = count(1)
        self.begin()

    def environ(self) -> dict[str, str]:
        """The environment variables of a command."""
        return {
            **os.environ,
            "VLLM_HARNESS_STATE": str(self.state),
            "VLLM_HARNESS_LINGER_S": str(LINGER_S),
            "XDG_RUNTIME_DIR": str(self._folder / "runtime"),
            "TMPDIR": str(self.tmp),
        }

    def new_output(self) -> Path:
        """The path of a new file for the output of a command."""
        return self._folder / f"output-{next(self._outputs)}"

    def begin(self) -> None:
        """Remembers the machine as it is, and empties the folders of earlier trials."""
        for folder in (self.work, self.state / "runs", self.state / "regression"):
            shutil.rmtree(folder, ignore_errors=True)
        self.work.mkdir()
        self.ports.clear()
        self._machine = Machine(self._ours, self.tmp)
        self._gpus = {gpu.uuid: gpu.used_bytes for gpu in gpus()}

    def look(self) -> None:
        """Remembers facts that cannot be found out later: other processes' memory, the servers' ports."""
        self._machine.look()
        for record in (self.state / "servers").glob("*.json"):
            with suppress(OSError, ValueError):
                self.ports.add(json.loads(record.read_text())["port"])

    def left(self, *, after_next_run: bool = False, within_s: float = GONE_WITHIN_S) -> list[str]:
        """Lists the leftovers, after waiting some time for everything to end.

        Args:
            after_next_run: also list what the next run has to remove: notes, leases, temporary folders.
            within_s: the longest wait.
        """
        deadline = time.monotonic() + within_s
        while True:
            self.reap()
            left = self._machine.left(self._excused(), self.ports)
            left += [f"memory of {gpu.describe()}" for gpu in wait_for_memory(self._gpus, limit_s=0)]
            left += list(self._notes()) if after_next_run else []
            if not left or time.monotonic() > deadline:
                return sorted(set(left))
            time.sleep(0.2)

    def reap(self) -> None:
        """Collects ended descendants whose parent has ended, as the machine's first process does."""
        own = {process.pid: process for process in (*self.own, *self.apart)}
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if process := own.get(ended.si_pid):
                    process.poll()
                else:
                    os.waitpid(ended.si_pid, 0)

    def clear(self) -> None:
        """Ends all processes."""
        deadline = time.monotonic() + GONE_WITHIN_S
        while (pids := self._ours()) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
            self.reap()

    def _ours(self) -> set[int]:
        return (self.processes.pids() | pids_below(self._folder)) - {process.pid for process in self.apart}

    def _excused(self) -> set[int]:
        """The fork servers and their templates, without servers that were forked from them."""
        return self.processes.templates() - {pid for pid in self.processes.tree(self.tmp) if pid}

    def _notes(self) -> Iterator[str]:
        """The notes, leases and temporary folders of ended processes."""
        yield from (str(path) for path in self.tmp.iterdir() if not path.name.startswith(PYTESTS))
        yield from (str(path) for path in (self.state / "servers").glob("*"))
        yield from (str(path) for path in (*self.state.rglob("*.half"), *self.work.rglob("*.partial")))
        with suppress(OSError, ValueError):
            for claim in json.loads((self.state / "claims.json").read_text()):
                if claim["kind"] != "left":
                    yield f"lease of pid {claim['pid']}: {claim['kind']} {claim['amounts'] or claim['port']}"
        for note in (self.state / "fork").glob("*.json"):
            with suppress(OSError, ValueError):
                if json.loads(note.read_text())["pid"] not in self.processes.fork_servers():
                    yield f"note of an ended fork server: {note}"


@contextmanager
def place(parent: Path = Path("/tmp")) -> Iterator[Place]:
    """Makes a place, and ends and removes everything at the end; also removes the folders of killed soaks."""
    with temporary_folder(parent) as folder:
        made = Place(folder)
        try:
            yield made
        finally:
            made.clear()
