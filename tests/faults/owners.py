"""Processes that own servers, and what these processes and their servers leave behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psutil

from tests.faults.descendants import Descendants, Tree
from tests.faults.leftovers import Machine, describe
from vllm_harness._environments.spec import Environment
from vllm_harness._server.supervisor import started

OWNING = Path(__file__).with_name("owning.py")
GONE_WITHIN_S = 60
HAPPENS_WITHIN_S = 600
T = TypeVar("T")


class Owners(Descendants):
    """A process that forks owners of servers; the owners share a separate fork server."""

    def __init__(self, environment: Environment) -> None:
        # a short path, because the servers' sockets are inside, and the length of a socket's path is limited
        self.folder = Path(tempfile.mkdtemp(prefix="vhk-", dir="/tmp"))
        state = self.folder / "state"
        own = {"VLLM_HARNESS_STATE": str(state), "VLLM_HARNESS_LINGER_S": "300"}
        self._process = subprocess.Popen(
            [sys.executable, str(OWNING), f"installed:{environment.python}"],
            env={**os.environ, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        super().__init__(self._process.pid, state)
        self._made = 0

    def warm_up(self) -> None:
        """Starts the fork server in advance, since while it imports it would outlive a killed owner."""
        with self.owner() as owner:
            owner.wait_until_serving()
            left = owner.kill()
            assert not left, left

    @contextmanager
    def owner(self) -> Iterator[Owner]:
        """Forks an owner that starts a server; kills the owner at the end."""
        self._made += 1
        folder = self.folder / str(self._made)
        (folder / "tmp").mkdir(parents=True)
        machine = Machine(self.pids)
        owner = Owner(self, folder, machine, self.fork("serve", folder))
        try:
            yield owner
        finally:
            with suppress(ProcessLookupError):
                os.kill(owner.pid, signal.SIGKILL)
        self.sweep()
        assert not list((self.state / "servers").iterdir())
        shutil.rmtree(folder)

    def fork(self, do: str, folder: Path) -> int:
        """Forks a process that starts a server or sweeps; returns its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"do": do, "tmp": folder / "tmp", "log": folder / "log", "serving": folder / "serving"}
        print(json.dumps(request, default=str), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def sweep(self) -> None:
        """Removes leftovers, as the next run does first."""
        folder = self.folder / "sweep"
        folder.mkdir(exist_ok=True)
        pid = self.fork("sweep", folder)
        wait_for(lambda: not psutil.pid_exists(pid))
        assert (folder / "log").read_text() == ""

    def end(self) -> list[str]:
        """Kills the fork server, then ends the process that forks owners; returns what is still running."""
        before = self.pids()
        if base := self.fork_server():
            os.kill(base, signal.SIGKILL)
        # pids() misses a process whose parent changes while the process tree is read
        with suppress(AssertionError):
            wait_for(lambda: not self._left_of(before), within_s=GONE_WITHIN_S)
        pids = sorted(self._left_of(before))
        left = [describe(pid) for pid in pids]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self.folder)
        return left

    def _left_of(self, before: set[int]) -> set[int]:
        return self.pids() | {pid for pid in before if started(pid) is not None}


class Owner:
    """A process that owns a server, as a test run does.

    Args:
        owners: the process that forked the owner.
        folder: a folder with the owner's temporary folder `tmp` and its output file `log`.
        machine: the earlier state of the machine.
        pid: the owner's process id.
    """

    def __init__(self, owners: Owners, folder: Path, machine: Machine, pid: int) -> None:
        self.owners = owners
        self.pid = pid
        self.tmp = folder / "tmp"
        self.machine = machine
        self._folder = folder
        self._ports: set[int] = set()

    def look(self) -> None:
        """Remembers facts that cannot be found out later: other processes' memory, the server's port."""
        self.machine.look()
        for record in (self.owners.state / "servers").glob("*.json"):
            with suppress(FileNotFoundError):
                self._ports.add(json.loads(record.read_text())["port"])

    def rest(self, seconds: float) -> None:
        """Waits, and calls `look` meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.05)

    def alive(self) -> bool:
        """Whether the owner is running."""
        with suppress(psutil.NoSuchProcess):
            return bool(psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE)
        return False

    def serving(self) -> bool:
        """Whether the owner's server has answered a request."""
        return (self._folder / "serving").exists()

    def health_url(self) -> str:
        """The URL of /health on the owner's server."""
        return (self._folder / "serving").read_text()

    def wait_until_serving(self) -> None:
        """Waits until the owner's server has answered a request."""
        wait_for(self.serving, self)

    def output(self) -> str:
        """The end of the owner's output."""
        return (self._folder / "log").read_text()[-2000:]

    def tree(self) -> Tree:
        """The process ids of supervisor, API server, engine and worker; None for one that does not exist."""
        return self.owners.tree(self.tmp)

    def left(self, *, excused: set[int]) -> list[str]:
        """Lists the leftovers on the machine, after waiting some time for everything to end.

        Args:
            excused: processes that may still be running, in addition to the fork server and its children.
        """

        deadline = time.monotonic() + GONE_WITHIN_S
        while True:
            left = self.machine.left(excused | self.owners.templates(), self._ports)
            left += [str(path) for path in self.tmp.iterdir()]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.2)

    def kill(self) -> list[str]:
        """Kills the owner with SIGKILL if it is running; returns the leftovers."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return self.left(excused=set())


def wait_for(
    look: Callable[[], T | None],
    owner: Owner | None = None,
    *,
    within_s: float = HAPPENS_WITHIN_S,
    every_s: float = 0.1,
) -> T:
    """Waits until `look` returns a true value, and returns the value; fails if the owner ends meanwhile."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if owner is not None:
            owner.look()
        if result := look():
            return result
        if owner is not None and not owner.alive():
            raise AssertionError(f"the owner ended: {owner.output()}")
        time.sleep(every_s)
    raise AssertionError("it did not happen in time")
