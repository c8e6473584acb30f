"""Processes that own servers, and the leftovers of them and their servers."""

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

from tests.faults.leftovers import Machine, describe
from vllm_harness._environments.spec import Environment
from vllm_harness._server.supervisor import started

OWNING = Path(__file__).with_name("owning.py")
GONE_WITHIN_S = 60
HAPPENS_WITHIN_S = 600
T = TypeVar("T")


class Owners:
    """A process that forks owners, which share a fork server of their own."""

    def __init__(self, environment: Environment) -> None:
        # short, because the length of a socket's path is limited, and the servers' folders are inside
        self.folder = Path(tempfile.mkdtemp(prefix="vhk-", dir="/tmp"))
        self.state = self.folder / "state"
        own = {"VLLM_HARNESS_STATE": str(self.state), "VLLM_HARNESS_LINGER_S": "300"}
        self._process = subprocess.Popen(
            [sys.executable, str(OWNING), f"installed:{environment.python}"],
            env={**os.environ, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._made = 0

    def warm_up(self) -> None:
        """Starts the fork server, which would outlive an owner that is killed while it imports."""
        with self.owner() as owner:
            owner.wait_until_serving()
            left = owner.kill()
            assert not left, left

    @contextmanager
    def owner(self) -> Iterator[Owner]:
        """An owner that starts a server, and is killed at the end."""
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
        """Forks a process that starts a server, or sweeps; returns its id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"do": do, "tmp": folder / "tmp", "log": folder / "log", "serving": folder / "serving"}
        print(json.dumps(request, default=str), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def sweep(self) -> None:
        """Sweeps, as the next run does first."""
        folder = self.folder / "sweep"
        folder.mkdir(exist_ok=True)
        pid = self.fork("sweep", folder)
        wait_for(lambda: not psutil.pid_exists(pid))
        assert (folder / "log").read_text() == ""

    def pids(self) -> set[int]:
        """The running processes below, without zombies."""
        pids = set()
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                pids |= {process.pid} if process.status() != psutil.STATUS_ZOMBIE else set()
        return pids

    def fork_server(self) -> int | None:
        """The process id of the fork server; None if there is none."""
        for note in self.state.glob("fork/*.json"):
            with suppress(ValueError):
                pid = int(json.loads(note.read_text())["pid"])
                return pid if pid in self.pids() else None
        return None

    def model_template(self) -> int | None:
        """The process id of the template that has, or loads, the model's tokenizer; None if there is none."""
        return next(iter(self.templates() - {self.fork_server() or 0}), None)

    def templates(self) -> set[int]:
        """The processes that outlive an owner: the fork server and its children."""
        base = self.fork_server()
        with suppress(psutil.NoSuchProcess):
            if base:
                return {base, *(child.pid for child in psutil.Process(base).children())} & self.pids()
        return set()

    def end(self) -> list[str]:
        """Kills the fork server, then ends the process that forks owners; returns what is still running."""
        before = self.pids()
        if base := self.fork_server():
            os.kill(base, signal.SIGKILL)
        # a process that changes its parent while the tree is read is missing in it
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
        owners: the process that forked it.
        folder: has its temporary folder `tmp`, and its output in `log`.
        machine: the earlier state of the machine.
        pid: its process id.
    """

    def __init__(self, owners: Owners, folder: Path, machine: Machine, pid: int) -> None:
        self.owners = owners
        self.pid = pid
        self.tmp = folder / "tmp"
        self.machine = machine
        self._folder = folder
        self._ports: set[int] = set()

    def look(self) -> None:
        """Remembers what is unknown at the end: memory of other processes, the server's port."""
        self.machine.look()
        for record in (self.owners.state / "servers").glob("*.json"):
            with suppress(FileNotFoundError):
                self._ports.add(json.loads(record.read_text())["port"])

    def rest(self, seconds: float) -> None:
        """Waits, and looks meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.05)

    def alive(self) -> bool:
        """Whether it is running."""
        with suppress(psutil.NoSuchProcess):
            return bool(psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE)
        return False

    def serving(self) -> bool:
        """Whether its server has answered a request."""
        return (self._folder / "serving").exists()

    def health_url(self) -> str:
        """The address where its server answers."""
        return (self._folder / "serving").read_text()

    def wait_until_serving(self) -> None:
        """Waits until its server has answered a request."""
        wait_for(self.serving, self)

    def output(self) -> str:
        """The end of its output."""
        return (self._folder / "log").read_text()[-2000:]

    def tree(self) -> tuple[int | None, int | None, int | None, int | None]:
        """The process ids of supervisor, API server, engine and worker; None for each that does not exist."""
        inside: dict[int, int] = {}
        for pid in sorted(self.owners.pids()):
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.cwd().startswith(f"{self.tmp}/") and "resource_tracker" not in str(
                    process.cmdline()
                ):
                    inside.setdefault(process.ppid(), pid)
        supervisor = next((pid for parent, pid in inside.items() if parent not in inside.values()), None)
        server = inside.get(supervisor or 0)
        engine = inside.get(server or 0)
        return supervisor, server, engine, inside.get(engine or 0)

    def left(self, *, excused: set[int]) -> list[str]:
        """The leftovers on the machine, after some time for everything to end.

        Args:
            excused: processes that may live, in addition to the fork server's.
        """

        deadline = time.monotonic() + GONE_WITHIN_S
        while True:
            left = self.machine.left(excused | self.owners.templates(), self._ports)
            left += [str(path) for path in self.tmp.iterdir()]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.2)

    def kill(self) -> list[str]:
        """Kills it by kill -9, if it is running; returns the leftovers."""
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
    """Waits for a true result of `look`, and returns it; an owner that ends meanwhile is an error."""
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
