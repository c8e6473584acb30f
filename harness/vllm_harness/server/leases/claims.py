"""Claims: locked files with a note about the holder. The kernel releases the lock of an ended process."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout


@dataclass(frozen=True)
class ClaimHolder:
    """The holder of a claim.

    Attributes:
        pid: process id.
        command: its command, for display.
        since: seconds since the epoch.
        task: a task of the process with waits of its own; see `own_task`.
    """

    pid: int
    command: str
    since: float
    task: str = ""

    @property
    def who(self) -> str:
        """Identifies the process, or the task of it."""
        return f"{self.pid} {self.task}".strip()

    @classmethod
    def this_process(cls) -> Self:
        """The process and task that run now."""
        return cls(os.getpid(), _command(), time.time(), _task.get())

    def __str__(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self.since))
        itself = ", this process" if self.pid == os.getpid() else ""
        return f"pid {self.pid} ({self.command}{itself}) since {since}"


def _command() -> str:
    """The command line as a person would type it, cut to 80 characters."""
    program, here = Path(sys.argv[0]), f"{Path.cwd()}/"
    name = program.parent.name if program.name == "__main__.py" else program.name
    return " ".join([name, *(argument.replace(here, "") for argument in sys.argv[1:])])[:80]


_task: ContextVar[str] = ContextVar("task", default="")


@contextmanager
def own_task(name: str) -> Iterator[None]:
    """Has claims that are made meanwhile belong to a task of their own.

    For threads that each start and end their own servers: none holds for ever what another waits for.
    """
    before = _task.set(name)
    try:
        yield
    finally:
        _task.reset(before)


class Claim:
    """An exclusive lock on `PATH.lock`, with a note beside it, `PATH.json`.

    Child processes that are started by exec do not inherit the lock.
    """

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path.with_name(f"{path.name}.lock"), thread_local=False)
        self._note = path.with_name(f"{path.name}.json")

    def take(self) -> bool:
        """Takes the lock if it is free; the note stays as the last holder left it."""
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            return False
        return True

    def held(self) -> bool:
        """Whether a process has the lock."""
        if taken := self.take():
            self.give_up()
        return not taken

    def note(self) -> dict[str, Any]:
        """The holder's note; after `take`, the note of a holder that was killed; empty otherwise."""
        with suppress(OSError, ValueError):
            return dict(json.loads(self._note.read_text()))
        return {}

    def holder(self) -> ClaimHolder | None:
        """The process that wrote the note."""
        with suppress(TypeError):
            return ClaimHolder(**self.note().get("holder", {}))
        return None

    def write(self, about: Mapping[str, object]) -> None:
        """Writes the note: this process, and the given fields."""
        half = self._note.with_suffix(".half")
        half.write_text(json.dumps({"holder": vars(ClaimHolder.this_process()), **about}))
        half.replace(self._note)

    def give_up(self) -> None:
        """Gives up the lock and leaves the note as it is."""
        self._lock.release()

    def release(self) -> None:
        """Gives up the lock and removes the note; calling it again does nothing."""
        if self._lock.is_locked:
            self._note.unlink(missing_ok=True)
            self._lock.release()

    def remove(self) -> None:
        """Gives up the lock and removes its files."""
        self._note.unlink(missing_ok=True)
        Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()


def enter(folder: Path, **note: object) -> Claim:
    """A new claim of this process in a folder of claims."""
    folder.mkdir(exist_ok=True)
    claim = Claim(folder / uuid.uuid4().hex)
    claim.take()
    claim.write(note)
    return claim


def entries(folder: Path) -> list[Claim]:
    """The claims in a folder that are held; files of other claims are removed."""
    held = []
    for path in sorted(folder.glob("*.lock")):
        claim = Claim(path.with_suffix(""))
        if claim.take():
            claim.remove()
        else:
            held.append(claim)
    return held
