"""Claims: the hardware and ports that each process holds or waits for, in one file with one lock.

A claim ends when its process ends, for whatever reason: the next reader of the file drops it.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar

from vllm_harness._files.locking import locked
from vllm_harness._files.paths import state_dir
from vllm_harness._machine.tasks import task_name
from vllm_harness._server.supervisor import started

T = TypeVar("T")
MEMORY = "memory"
LEFTOVER_S = 30.0
"""How long (seconds) a killed run's GPUs are remembered, while its supervisor releases their memory."""


def this_process() -> str:
    """Identifies this process, or the task that this thread runs; see `Claim.holder`."""
    return f"{os.getpid()} {task_name()}"


def in_bytes(gib: float) -> int:
    """Converts a size in GiB to bytes."""
    return int(gib * 2**30)


def _command() -> str:
    """This process's command line as a person would type it, truncated to 80 characters."""
    program, here = Path(sys.argv[0]), f"{Path.cwd()}/"
    name = program.parent.name if program.name == "__main__.py" else program.name
    return " ".join([name, *(argument.replace(here, "") for argument in sys.argv[1:])])[:80]


@dataclass(frozen=True)
class Claim:
    """A resource that a process, or a task within it, holds or waits for.

    Attributes:
        kind: `lease` for a server, `reservation` for the servers of a test, `wait`, `port`, or `left` if a
            killed process held GPUs.
        amounts: resource -> amount: bytes of memory, or the number of shares of a GPU, named by UUID.
        used: resource -> bytes: memory that the server uses, or GPU memory in use before the server started.
        env: variables that bind the server to its GPUs.
        port: a leased port.
        holder: identifies the process and the task that made the claim.
        pid, started, command: id, start time (see `supervisor.started`) and command line of the process.
        since: when the claim was made.
    """

    kind: Literal["lease", "reservation", "wait", "port", "left"]
    amounts: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    port: int = 0
    holder: str = field(default_factory=this_process)
    pid: int = field(default_factory=os.getpid)
    started: int | None = field(default_factory=lambda: started(os.getpid()))
    command: str = field(default_factory=_command)
    since: float = field(default_factory=time.time)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __str__(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self.since))
        itself = ", this process" if self.pid == os.getpid() else ""
        return f"pid {self.pid} ({self.command}{itself}) since {since}"

    def settle(self, *, gib: float, used: float) -> None:
        """Notes how much memory a ready server may use in total, and how much it uses so far."""
        settled = replace(self, amounts={MEMORY: in_bytes(gib)}, used={MEMORY: in_bytes(used)})
        with all_claims() as claims:
            claims[:] = [settled if claim.id == self.id else claim for claim in claims]

    def release(self) -> None:
        """Removes the claim; a second call does nothing."""
        with all_claims() as claims:
            claims[:] = [claim for claim in claims if claim.id != self.id]


@contextmanager
def locked_json(path: Path, empty: T) -> Iterator[T]:
    """Locks a JSON file and yields its content; at the end, writes back what the caller has changed."""
    with locked(path.with_suffix(".lock"), "another run that takes or gives back hardware"):
        content = empty
        with suppress(OSError, ValueError):
            content = json.loads(path.read_text())
        yield content
        half = path.with_suffix(".half")
        half.write_text(json.dumps(content, indent=1, sort_keys=True))
        half.replace(path)


@contextmanager
def all_claims() -> Iterator[list[Claim]]:
    """Locks the claims file and yields all claims; at the end, writes back what the caller has changed."""
    with locked_json(state_dir() / "claims.json", list[dict[str, Any]]()) as notes:
        claims = [claim for claim in map(_current, notes) if claim is not None]
        yield claims
        notes[:] = map(vars, claims)


def _current(note: dict[str, Any]) -> Claim | None:
    """The claim in a note, updated to the state of its process; None if the claim has ended."""
    with suppress(TypeError):  # another version of the harness wrote the note
        claim = Claim(**note)
        if claim.kind == "left":
            return claim if time.time() - claim.since <= LEFTOVER_S else None
        if started(claim.pid) == claim.started:
            return claim
        if claim.env:
            return replace(claim, kind="left", since=time.time())
    return None


def held_by(claims: Iterable[Claim], resources: Collection[str]) -> Counter[str]:
    """How much of the given resources each holder has; a reservation includes its holder's leases."""
    leased, reserved = Counter[str](), Counter[str]()
    for claim in claims:
        amount = Counter({claim.holder: sum(claim.amounts.get(resource, 0) for resource in resources)})
        if claim.kind == "lease":
            leased += amount
        elif claim.kind == "reservation":
            reserved |= amount
    return leased | reserved


def waiting_before(claims: Iterable[Claim]) -> list[Claim]:
    """The waits of others that began before this process's own, or all waits if it is not waiting."""
    waits = sorted(
        (claim for claim in claims if claim.kind == "wait"), key=lambda wait: (wait.since, wait.id)
    )
    return list(takewhile(lambda wait: wait.holder != this_process(), waits))


def holds_hardware(claims: Iterable[Claim]) -> bool:
    """Whether this process holds a lease or a reservation."""
    return any(claim.kind in ("lease", "reservation") and claim.holder == this_process() for claim in claims)


def may_wait(extra: int, total: int, claims: Collection[Claim], resources: Collection[str]) -> bool:
    """Whether this process may wait for more of the given resources without risking a deadlock.

    A process that holds no hardware blocks no other. A process that holds some may wait only for what
    remains after subtracting everything that it and those before it in the queue hold. Once all other
    processes have ended, the last one in the queue can therefore continue, then the one before it, and so on.
    """
    held = held_by(claims, resources)
    holders = {this_process(), *(wait.holder for wait in waiting_before(claims))}
    return not holds_hardware(claims) or sum(held[holder] for holder in holders) + extra <= total
