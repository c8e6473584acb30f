"""Memory leased to CPU servers: the entries of the ledger are locked files, released with their process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import psutil
from filelock import FileLock

from vllm_harness.files.paths import state_dir
from vllm_harness.server.leases.claims import Claim, ClaimHolder, enter, entries
from vllm_harness.server.leases.lease import Busy, Lease, NotEnoughHardware, wait_for
from vllm_harness.server.leases.ledger import Account, Room, can_end, fits

Measure = Callable[[float], Room]
"""The memory there is, given what the servers with leases have taken already (GiB)."""


def lease_memory(gib: float, *, room: Measure, wait_s: float = 3600.0) -> Lease:
    """Leases memory for a server on CPU.

    All leases together never exceed the memory there is, and what they have not taken yet is available now.

    Args:
        gib: the size.
        room: gives the memory there is.
        wait_s: seconds to wait for other leases.

    Raises:
        NotEnoughHardware: at once, where it could never fit.
        WaitCannotEnd: at once, where the holders wait for this process.
        LeaseTimeout: naming the holders.
    """
    with _wait_entry() as wait:
        return wait_for(partial(_attempt, "lease", gib, room, wait), f"{gib:.1f} GiB of memory", wait_s)


def reserve_memory(gib: float, *, room: Measure, wait_s: float = 3600.0) -> Lease:
    """Reserves memory for the servers that this process is about to use, including its running servers.

    To be called while none of its servers is in use: they are given back where it would have to wait, so that
    no other process waits for this one. Later leases are a part of it. Raises as `lease_memory`.
    """
    with _wait_entry() as wait:
        wanted = f"{gib:.1f} GiB of memory for the next test"
        return wait_for(partial(_attempt, "reserve", gib, room, wait), wanted, wait_s)


def others_have_waited_s() -> float:
    """The longest wait of another process for memory so far, in seconds; 0 where none waits."""
    with _locked():
        who = ClaimHolder.this_process().who
        since = [each.since for each in _accounts() if each.wanted and each.who != who]
    return max(0.0, time.time() - min(since)) if since else 0.0


def accounts() -> list[Account]:
    """The accounts of all processes now."""
    with _locked():
        return _accounts()


def _attempt(kind: Literal["lease", "reserve"], gib: float, measure: Measure, wait: Claim) -> Lease | Busy:
    with _locked():
        every = _accounts()
        who = ClaimHolder.this_process().who
        own = next((each for each in every if each.who == who), Account(who))
        after = max(own.leased + gib, own.reserved) if kind == "lease" else max(own.leased, gib)
        extra = after - own.held
        if extra <= 0:
            return _granted(kind, gib, wait)
        room = measure(sum(account.used for account in every))
        if gib > room.total:
            raise _too_large(gib, room)
        # a process that holds servers in use must not queue behind processes that wait for it
        queue = kind == "reserve" or not own.leased
        if fits(extra, own.who, every, room, queue=queue):
            return _granted(kind, gib, wait)
        # of processes that wait for each other only the last is refused, which closes the circle
        endless = not can_end(extra, own.who, every, room.total)
        wait.write({"kind": "wait", "gib": 0 if endless else extra, "since": own.since or time.time()})
    leased = any(each.held or each.wanted for each in every if each.who != own.who)
    return Busy(_reason(every, own.who), leased, partial(_figures, room), endless)


def _granted(kind: str, gib: float, wait: Claim) -> Lease:
    """The lease; its wait ends at the same moment, or others would see a holder that waits for itself."""
    wait.write({"kind": "wait", "gib": 0.0, "since": 0.0})
    return Lease([enter(_folder(), kind=kind, gib=gib)])


@contextmanager
def _wait_entry() -> Iterator[Claim]:
    """The ledger entry of this wait; its size is written when the first attempt fails."""
    with _locked():
        claim = enter(_folder(), kind="wait", gib=0.0, since=0.0)
    try:
        yield claim
    finally:
        with _locked():
            claim.remove()


def _accounts() -> list[Account]:
    """An account for each process or task; entries of ended processes are removed."""
    found: dict[str, Account] = {}
    for claim in entries(_folder()):
        note, holder = claim.note(), claim.holder()
        if holder is not None:
            account = found.get(holder.who, Account(holder.who, str(holder)))
            found[holder.who] = _with(account, note["kind"], note)
    return list(found.values())


def _with(account: Account, kind: str, note: dict[str, float]) -> Account:
    gib = note["gib"]
    match kind:
        case "lease":
            used = min(gib, note.get("used", 0.0))
            return replace(account, leased=account.leased + gib, used=account.used + used)
        case "reserve":
            return replace(account, reserved=account.reserved + gib)
        case "wait" if gib:
            since = min(account.since or note["since"], note["since"])
            return replace(account, wanted=max(account.wanted, gib), since=since)
    return account


def _too_large(gib: float, room: Room) -> NotEnoughHardware:
    return NotEnoughHardware(
        f"a server needs {gib:.1f} GiB of memory; there are {max(0.0, room.total):.1f} GiB for servers",
        hint="run a smaller model, lower the entry's cpu_memory_gib, or raise the limit "
        "(VLLM_HARNESS_MEMORY_GIB, the control group's); `vllm-harness doctor` shows how many servers fit",
    )


def _reason(every: list[Account], own: str) -> str:
    """The holders and what they hold; the same text as long as nothing changes."""
    parts = []
    for each in every:
        waits = f" and waits for {each.wanted:.1f} GiB" if each.wanted else ""
        if each.held:
            parts.append(f"{each.held:.1f} GiB are leased by {each.holder}{waits}")
        elif each.wanted and each.who != own:
            parts.append(f"{each.holder} has waited for {each.wanted:.1f} GiB for longer")
    return "; ".join(parts) or "other processes use it"


def _figures(room: Room) -> str:
    users = psutil.process_iter(["name", "memory_info"])
    sizes = [(p.info["memory_info"].rss, p.pid, p.info["name"]) for p in users if p.info["memory_info"]]
    largest = [f"pid {pid} ({name}, {rss / 2**30:.1f} GiB)" for rss, pid, name in sorted(sizes)[:-4:-1]]
    free, total = max(0.0, room.available), room.total
    return f"{free:.1f} of {total:.1f} GiB are free, the largest users are {', '.join(largest)}"


def _locked() -> FileLock:
    return FileLock(state_dir() / "memory.lock", thread_local=False)


def _folder() -> Path:
    return state_dir() / "memory"
