"""Leases of memory for CPU servers, and reservations of memory for all servers of a test."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import psutil

from vllm_harness._server.fork_server import dismiss_unused
from vllm_harness._server.leases.claims import (
    MEMORY,
    Claim,
    all_claims,
    held_by,
    holds_hardware,
    in_bytes,
    may_wait,
    this_process,
    waiting_before,
)
from vllm_harness._server.leases.waiting import Busy, NotEnoughHardware, reclaim_with, wait_for


@dataclass(frozen=True)
class Room:
    """The memory (GiB) that servers may use in total, and the part of it that is available now."""

    total: float
    available: float


def lease_memory(
    gib: float,
    *,
    room: Callable[[], Room],
    wait_s: float | None = None,
    kind: Literal["lease", "reservation"] = "lease",
) -> Claim:
    """Leases memory for a CPU server, or reserves it for all servers that this process is about to use.

    All leases together never exceed the memory that servers may use, and the memory that is leased but not
    yet in use is always available on the machine.

    Args:
        gib: the amount, GiB.
        room: measures the memory for servers.
        wait_s: seconds to wait for leases of others, instead of VLLM_HARNESS_LEASE_WAIT_S.
        kind: a reservation covers the running servers of this process and its later leases. Make it while
            no server is in use: if it has to wait, idle servers are ended.

    Raises:
        NotEnoughHardware: the amount can never be leased; raised without a wait.
        WaitCannotEnd: the holders may be waiting for this process; raised without a wait.
        LeaseTimeout: the holders did not release enough memory in time; the message names the holders.
    """
    wanted = f"{gib:.1f} GiB of memory" + (" for the next test" if kind == "reservation" else "")
    with reclaim_with(dismiss_unused):
        return wait_for(room, partial(_attempt, Claim(kind, {MEMORY: in_bytes(gib)})), wanted, wait_s)


def used_and_coming(claims: Iterable[Claim]) -> tuple[int, int]:
    """The leased or reserved bytes that servers already use, and those that they do not use yet."""
    used = Counter[str]()
    for claim in claims:
        used[claim.holder] += min(claim.amounts.get(MEMORY, 0), claim.used.get(MEMORY, 0))
    return used.total(), (held_by(claims, [MEMORY]) - used).total()


def others_have_waited_s() -> float:
    """For how long another process has been waiting for memory, at most (seconds); 0 if none is waiting."""
    with all_claims() as claims:
        others = [claim for claim in claims if claim.kind == "wait" and claim.holder != this_process()]
    return max((time.time() - claim.since for claim in others if MEMORY in claim.amounts), default=0.0)


def _attempt(claim: Claim, room: Room, claims: list[Claim]) -> Claim | Busy:
    held = held_by(claims, [MEMORY])
    extra = held_by([*claims, claim], [MEMORY])[claim.holder] - held[claim.holder]
    if extra <= 0:
        return claim
    used, coming = used_and_coming(claims)
    if (size := claim.amounts[MEMORY]) > (total := in_bytes(room.total)):
        raise NotEnoughHardware(
            f"a server needs {size / 2**30:.1f} GiB of memory; "
            f"there are {max(0.0, room.total):.1f} GiB for servers",
            hint="run a smaller model, lower the entry's cpu_memory_gib, or raise the limit (VLLM_HARNESS_"
            "MEMORY_GIB, the control group's); `vllm-harness doctor` shows how many servers fit",
        )
    # a process that holds hardware does not queue behind processes that may wait for it
    first = [] if holds_hardware(claims) else waiting_before(claims)
    ahead = sum(wait.amounts.get(MEMORY, 0) for wait in first)
    more = extra + ahead
    if held.total() + more <= total and coming + more <= in_bytes(room.available):
        return claim
    return Busy(
        _reason(claims, held),
        leased=ahead > 0 or any(holder != claim.holder for holder in held),
        endless=not may_wait(extra, total, claims, [MEMORY]),
        figures=partial(_figures, room, used / 2**30),
        wanted={MEMORY: extra},
    )


def _reason(claims: list[Claim], held: Counter[str]) -> str:
    """Names the holders of memory, and the processes that have been waiting for it for longer."""
    named = {claim.holder: str(claim) for claim in claims}
    waits = {
        claim.holder: f"{claim.amounts[MEMORY] / 2**30:.1f} GiB"
        for claim in claims
        if claim.kind == "wait" and claim.amounts
    }
    parts = [
        f"{size / 2**30:.1f} GiB are leased by {named[holder]}"
        + (f" and waits for {waits[holder]}" if holder in waits else "")
        for holder, size in held.items()
    ]
    parts += [
        f"{named[holder]} has waited for {size} for longer"
        for holder, size in waits.items()
        if holder not in held and holder != this_process()
    ]
    return "; ".join(parts) or "other processes use it"


def _figures(room: Room, used: float) -> str:
    users = psutil.process_iter(["name", "memory_info"])
    sizes = [(p.info["memory_info"].rss, p.pid, p.info["name"]) for p in users if p.info["memory_info"]]
    largest = [f"pid {pid} ({name}, {rss / 2**30:.1f} GiB)" for rss, pid, name in sorted(sizes)[:-4:-1]]
    free = max(0.0, min(room.available, room.total - used))
    return f"{free:.1f} of {room.total:.1f} GiB are free, the largest users are {', '.join(largest)}"
