"""GPUs leased whole: a locked file for each, named by its uuid."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
from filelock import FileLock

from vllm_harness.files.paths import state_dir
from vllm_harness.machine.gpus import (
    NOMINAL_SHARE,
    TOLERANCE_BYTES,
    VISIBLE_VARIABLE,
    Gpu,
    describe_gpus,
    visible_gpus,
)
from vllm_harness.scripted.in_server.vllm_harness_names import SERVER_ID
from vllm_harness.server.leases.claims import Claim, ClaimHolder, enter, entries
from vllm_harness.server.leases.lease import Busy, Lease, NotEnoughHardware, wait_for
from vllm_harness.server.leases.ledger import Account, can_end

LEFTOVER_S = 30.0
"""How long memory beyond what a killed run had found counts as that run's, which its supervisor ends."""


def lease_gpus(
    count: int,
    gib: float,
    *,
    visible: Callable[[], list[Gpu]] = visible_gpus,
    wait_s: float = 3600.0,
) -> Lease:
    """Leases GPUs for a server, those with most free memory first. The lease's `env` binds it to them.

    Args:
        count: how many.
        gib: free memory of each, GiB.
        visible: the GPUs to choose from.
        wait_s: seconds to wait for other leases.

    Raises:
        NotEnoughHardware: at once, where the GPUs are too few or too small.
        WaitCannotEnd: at once, where their holders wait for this process.
        LeaseTimeout: naming their holders.
        UsageError: CUDA_VISIBLE_DEVICES names a GPU that the machine does not have.
    """
    wanted = f"{count} {'GPU' if count == 1 else 'GPUs'} with {gib:g} GiB"
    wait = enter(_waits(), count=0)
    try:
        return wait_for(partial(_attempt, count, gib, visible, wait), wanted, wait_s)
    finally:
        wait.remove()


def _attempt(count: int, gib: float, visible: Callable[[], list[Gpu]], wait: Claim) -> Lease | Busy:
    """Takes all GPUs or none, so that two processes that wait never hold a part each."""
    need = int(gib * NOMINAL_SHARE * 2**30)
    with FileLock(_folder() / "turn.lock", thread_local=False):
        devices = visible()
        large = [gpu for gpu in devices if gpu.total_bytes >= need]
        if len(large) < count:
            raise _too_large(count, gib, devices)
        taken: dict[Claim, Gpu] = {}
        obstacles: list[tuple[str, bool]] = []
        for gpu in sorted(large, key=lambda gpu: gpu.used_bytes):
            claim = Claim(_folder() / gpu.uuid)
            if obstacle := _take(claim, gpu, need):
                obstacles.append(obstacle)
            else:
                taken[claim] = gpu
            if len(taken) == count:
                return _lease(taken)
        for claim in taken:
            claim.release()
        endless = not can_end(count, ClaimHolder.this_process().who, _accounts(large), len(large))
        wait.write({"count": 0 if endless else count})
    reason = "; ".join(text for text, _ in obstacles)
    leased = any(leased for _, leased in obstacles)
    return Busy(reason, leased, partial(describe_gpus, devices), endless)


def _accounts(devices: Sequence[Gpu]) -> list[Account]:
    """How many of these GPUs each process holds and awaits."""
    found: dict[str, Account] = {}
    leased = {claim: "leased" for claim in (Claim(_folder() / gpu.uuid) for gpu in devices) if claim.held()}
    for claim, what in {**leased, **dict.fromkeys(entries(_waits()), "wanted")}.items():
        if holder := claim.holder():
            account = found.setdefault(holder.who, Account(holder.who))
            number = getattr(account, what) + claim.note().get("count", 1)
            found[holder.who] = replace(account, **{what: number})
    return list(found.values())


def _take(claim: Claim, gpu: Gpu, need: int) -> tuple[str, bool] | None:
    """Takes the claim; otherwise returns what is in the way, and whether that is a lease."""
    if not claim.take():
        return f"GPU {gpu.index} is leased by {claim.holder() or 'another run'}", True
    if obstacle := _leftover(claim, gpu) or _unleased_use(gpu, need):
        claim.give_up()
        return f"GPU {gpu.index} {obstacle}", False
    claim.write({"used_bytes": gpu.used_bytes})
    return None


def _leftover(claim: Claim, gpu: Gpu) -> str | None:
    """Memory that a killed run has left on the GPU; the run's note is left as well."""
    for holder in gpu.processes:
        with suppress(psutil.Error):
            if SERVER_ID in psutil.Process(holder.pid).environ():
                server = f"pid {holder.pid} ({holder.name})"
                return f"is used by {server}, a server of the harness whose run has ended"
    note = claim.note()
    if gpu.used_bytes <= note.get("used_bytes", gpu.used_bytes) + TOLERANCE_BYTES:
        return None
    found = note.setdefault("found", time.time())
    if time.time() - found > LEFTOVER_S:
        return None
    claim.write(note)
    return f"still has memory of {claim.holder() or 'a run'}, which was killed"


def _unleased_use(gpu: Gpu, need: int) -> str | None:
    if gpu.free_bytes >= need:
        return None
    names = [f"pid {holder.pid} ({holder.name})" for holder in gpu.processes]
    return f"is used by {', '.join(names) or 'a process that NVML does not name'}"


def _lease(taken: dict[Claim, Gpu]) -> Lease:
    gpus = sorted(taken.values(), key=lambda gpu: gpu.index)
    names = ",".join(gpu.visible_name for gpu in gpus)
    return Lease([*taken], {VISIBLE_VARIABLE: names, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, gpus)


def _too_large(count: int, gib: float, devices: Sequence[Gpu]) -> NotEnoughHardware:
    present = ", ".join(f"GPU {gpu.index} ({gpu.name}, {gpu.total_bytes / 2**30:.1f} GiB)" for gpu in devices)
    return NotEnoughHardware(
        f"a server needs {count} x {gib:g} GiB of GPU memory; this machine has {present or 'no GPU'}",
        hint=f"run a smaller model, lower the entry's hardware need, or check what {VISIBLE_VARIABLE} hides",
    )


def _folder() -> Path:
    folder = state_dir() / "gpus"
    folder.mkdir(exist_ok=True)
    return folder


def _waits() -> Path:
    return _folder() / "waiting"
