"""Claims: locked files that say who holds them. The kernel drops the lock of a process that dies, however."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout


@dataclass(frozen=True)
class Holder:
    """Who holds a claim: process id, its command, and since when (seconds since the epoch)."""

    pid: int
    command: str
    since: float

    @classmethod
    def this_process(cls) -> Self:
        """The process now running."""
        return cls(os.getpid(), " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:80], time.time())

    def __str__(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self.since))
        itself = ", this very process" if self.pid == os.getpid() else ""
        return f"pid {self.pid} ({self.command}{itself}) since {since}"


class Claim:
    """An exclusive lock on `PATH.lock`, with a note beside it, `PATH.json`.

    Child processes that are started by exec do not inherit the lock.
    """

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path.with_name(f"{path.name}.lock"), thread_local=False)
        self._note = path.with_name(f"{path.name}.json")

    def take(self) -> bool:
        """Takes the lock if nobody has it; the note stays as the last holder left it."""
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            return False
        return True

    def held(self) -> bool:
        """Whether somebody has the lock."""
        if taken := self.take():
            self.let_go()
        return not taken

    def note(self) -> dict[str, Any]:
        """What the holder wrote; after `take`, what one that was killed has left; empty otherwise."""
        with suppress(OSError, ValueError):
            return dict(json.loads(self._note.read_text()))
        return {}

    def holder(self) -> Holder | None:
        """Who wrote the note."""
        with suppress(TypeError):
            return Holder(**self.note().get("holder", {}))
        return None

    def write(self, about: Mapping[str, object]) -> None:
        """Writes the note: this process, and what else there is to say."""
        half = self._note.with_suffix(".half")
        half.write_text(json.dumps({"holder": vars(Holder.this_process()), **about}))
        half.replace(self._note)

    def let_go(self) -> None:
        """Gives up the lock and leaves the note as it is."""
        self._lock.release()

    def release(self) -> None:
        """Gives up the lock and removes the note; calling it again does nothing."""
        if self._lock.is_locked:
            self._note.unlink(missing_ok=True)
            self._lock.release()

    def remove(self) -> None:
        """Gives up the lock and leaves no file behind."""
        self._note.unlink(missing_ok=True)
        Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()


def enter(folder: Path, **note: object) -> Claim:
    """A claim of this process's own in a folder of such entries."""
    folder.mkdir(exist_ok=True)
    claim = Claim(folder / uuid.uuid4().hex)
    claim.take()
    claim.write(note)
    return claim


def entries(folder: Path) -> list[Claim]:
    """The claims in a folder that somebody holds; what is left of the others is removed."""
    held = []
    for path in sorted(folder.glob("*.lock")):
        claim = Claim(path.with_suffix(""))
        if claim.take():
            claim.remove()
        else:
            held.append(claim)
    return held
