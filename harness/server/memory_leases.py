"""Memory leased to CPU servers: a ledger of GiB, each promise a locked file that a dead holder loses."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
from filelock import FileLock

from harness.paths import state_dir
from harness.server.claims import Claim
from harness.server.lease import Busy, Lease, NotEnoughHardware, Waiting, unheard, wait_for
from harness.server.node_memory import NodeMemory, node_memory


def lease_memory(
    gib: float,
    *,
    memory: Callable[[], NodeMemory] = node_memory,
    waiting: Waiting = unheard,
    wait_s: float = 3600.0,
) -> Lease:
    """Leases memory for one server on CPU.

    All promises together never pass the node's memory, and what is not promised must be available now.

    Args:
        gib: how much, GiB.
        memory: what there is.
        waiting: told who holds it.
        wait_s: seconds to wait for other leases.

    Raises:
        NotEnoughHardware: at once, where the node is smaller.
        LeaseTimeout: naming who holds it.
    """
    return wait_for(partial(_attempt, gib, memory), f"{gib:g} GiB of memory", waiting, wait_s)


def _attempt(gib: float, memory: Callable[[], NodeMemory]) -> Lease | Busy:
    with FileLock(state_dir() / "memory.lock", thread_local=False):
        now = memory()
        if gib * 2**30 > now.total:
            raise NotEnoughHardware(
                f"asked for {gib:g} GiB of memory; there are {now.total / 2**30:.1f} GiB "
                "(the NUMA node, or the control group's limit)",
                hint="run a smaller model, lower the entry's cpu_memory_gib, or raise the limit",
            )
        promises = _promises()
        promised = sum(promise.note().get("gib", 0.0) for promise in promises)
        coming = sum(p.note().get("gib", 0.0) for p in promises if p.note().get("starting"))
        if promised + gib <= now.total / 2**30 and gib <= now.available / 2**30 - coming:
            claim = Claim(_folder() / uuid.uuid4().hex)
            claim.take()
            claim.write({"gib": gib, "starting": True})
            return Lease([claim])
    holders = [f"{p.note().get('gib', 0):g} GiB are leased by {p.holder()}" for p in promises]
    return Busy("; ".join(holders) or "other processes use it", bool(promises), partial(_figures, now))


def _promises() -> list[Claim]:
    """The promises that somebody holds; what is left of the others is removed."""
    held = []
    for path in sorted(_folder().glob("*.lock")):
        claim = Claim(path.with_suffix(""))
        if claim.take():
            claim.remove()
        else:
            held.append(claim)
    return held


def _figures(now: NodeMemory) -> str:
    users = psutil.process_iter(["name", "memory_info"])
    sizes = [(p.info["memory_info"].rss, p.pid, p.info["name"]) for p in users if p.info["memory_info"]]
    largest = [f"pid {pid} ({name}, {rss / 2**30:.1f} GiB)" for rss, pid, name in sorted(sizes)[:-4:-1]]
    free, total = now.available / 2**30, now.total / 2**30
    return f"{free:.1f} of {total:.1f} GiB are free, the largest users are {', '.join(largest)}"


def _folder() -> Path:
    folder = state_dir() / "memory"
    folder.mkdir(exist_ok=True)
    return folder
