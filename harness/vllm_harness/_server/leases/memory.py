"""Memory leased to CPU servers, or reserved at once for all servers of a test."""

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
    """Memory that servers may have in total, and that the machine could give now (`available`), GiB."""

    total: float
    available: float


def lease_memory(
    gib: float,
    *,
    room: Callable[[], Room],
    wait_s: float | None = None,
    kind: Literal["lease", "reservation"] = "lease",
) -> Claim:
    """Leases memory for a server on CPU, or reserves it for all servers that this process is about to use.

    All of it together never exceeds the memory there is, and what is not taken yet is available now.

    Args:
        gib: the size.
        room: measures the memory there is.
        wait_s: seconds to wait for others, in place of VLLM_HARNESS_LEASE_WAIT_S.
        kind: a reservation includes the running servers of this process, and later leases are a part of it.
            It is made while none of them is in use: they are given back where it would have to wait.

    Raises:
        NotEnoughHardware: at once, where it could never fit.
        WaitCannotEnd: at once, where the holders may wait for this process.
        LeaseTimeout: naming the holders.
    """
    wanted = f"{gib:.1f} GiB of memory" + (" for the next test" if kind == "reservation" else "")
    with reclaim_with(dismiss_unused):
        return wait_for(room, partial(_attempt, Claim(kind, {MEMORY: in_bytes(gib)})), wanted, wait_s)


def used_and_coming(claims: Iterable[Claim]) -> tuple[int, int]:
    """The bytes that servers have taken, and those that may be taken yet of what is held."""
    used = Counter[str]()
    for claim in claims:
        used[claim.who] += min(claim.amounts.get(MEMORY, 0), claim.used.get(MEMORY, 0))
    return used.total(), (held_by(claims, [MEMORY]) - used).total()


def others_have_waited_s() -> float:
    """The longest wait of another process for memory so far, in seconds; 0 where none waits."""
    with all_claims() as claims:
        others = [claim for claim in claims if claim.kind == "wait" and claim.who != this_process()]
    return max((time.time() - claim.since for claim in others if MEMORY in claim.amounts), default=0.0)


def _attempt(claim: Claim, room: Room, claims: list[Claim]) -> Claim | Busy:
    held = held_by(claims, [MEMORY])
    extra = held_by([*claims, claim], [MEMORY])[claim.who] - held[claim.who]
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
    # who holds hardware does not queue behind those that may wait for it
    first = [] if holds_hardware(claims) else waiting_before(claims)
    ahead = sum(wait.amounts.get(MEMORY, 0) for wait in first)
    more = extra + ahead
    if held.total() + more <= total and coming + more <= in_bytes(room.available):
        return claim
    return Busy(
        _reason(claims, held),
        leased=ahead > 0 or any(who != claim.who for who in held),
        endless=not may_wait(extra, total, claims, [MEMORY]),
        figures=partial(_figures, room, used / 2**30),
        wanted={MEMORY: extra},
    )


def _reason(claims: list[Claim], held: Counter[str]) -> str:
    """Who holds memory, and who has waited for it for longer."""
    named = {claim.who: str(claim) for claim in claims}
    waits = {c.who: f"{c.amounts[MEMORY] / 2**30:.1f} GiB" for c in claims if c.kind == "wait" and c.amounts}
    parts = [
        f"{size / 2**30:.1f} GiB are leased by {named[who]}"
        + (f" and waits for {waits[who]}" if who in waits else "")
        for who, size in held.items()
    ]
    parts += [
        f"{named[who]} has waited for {size} for longer"
        for who, size in waits.items()
        if who not in held and who != this_process()
    ]
    return "; ".join(parts) or "other processes use it"


def _figures(room: Room, used: float) -> str:
    users = psutil.process_iter(["name", "memory_info"])
    sizes = [(p.info["memory_info"].rss, p.pid, p.info["name"]) for p in users if p.info["memory_info"]]
    largest = [f"pid {pid} ({name}, {rss / 2**30:.1f} GiB)" for rss, pid, name in sorted(sizes)[:-4:-1]]
    free = max(0.0, min(room.available, room.total - used))
    return f"{free:.1f} of {room.total:.1f} GiB are free, the largest users are {', '.join(largest)}"
