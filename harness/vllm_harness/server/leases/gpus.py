"""GPUs leased whole, or by the shares that stand-ins take: a locked file for each, named by the uuid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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

SHARES = 16
"""So many stand-ins run on one GPU at most; who leases it whole takes all of its shares."""
LEFTOVER_S = 30.0
"""How long memory beyond what a killed run had found counts as that run's, which its supervisor ends."""


@dataclass(frozen=True)
class _Obstacle:
    """What keeps a GPU from being leased, and whether that is a lease."""

    text: str
    leased: bool


def lease_gpus(
    count: int,
    gib: float,
    *,
    shared: bool = False,
    visible: Callable[[], list[Gpu]] = visible_gpus,
    wait_s: float = 3600.0,
) -> Lease:
    """Leases GPUs for a server, those with most free memory first. The lease's `env` binds it to them.

    Args:
        count: how many.
        gib: free memory of each, GiB.
        shared: a share of each, beside other servers that take shares; else each GPU whole.
        visible: the GPUs to choose from.
        wait_s: seconds to wait for other leases.

    Raises:
        NotEnoughHardware: at once, where the GPUs are too few or too small.
        WaitCannotEnd: at once, where their holders wait for this process.
        LeaseTimeout: naming their holders.
        UsageError: CUDA_VISIBLE_DEVICES names a GPU that the machine does not have.
    """
    share = "a share of " if shared else ""
    wanted = f"{share}{count} {'GPU' if count == 1 else 'GPUs'} with {gib:g} GiB"
    wait = enter(_waits(), count=0)
    try:
        return wait_for(partial(_attempt, count, gib, shared, visible, wait), wanted, wait_s)
    finally:
        wait.remove()


def _attempt(
    count: int, gib: float, shared: bool, visible: Callable[[], list[Gpu]], wait: Claim
) -> Lease | Busy:
    """Takes all GPUs or none, so that two processes that wait never hold a part each."""
    need = int(gib * NOMINAL_SHARE * 2**30)
    with FileLock(_folder() / "turn.lock", thread_local=False):
        devices = visible()
        large = [gpu for gpu in devices if gpu.total_bytes >= need]
        if len(large) < count:
            raise _too_large(count, gib, devices)
        taken: list[tuple[Gpu, list[Claim]]] = []
        obstacles: list[_Obstacle] = []
        for gpu in sorted(large, key=lambda gpu: gpu.used_bytes):
            claims = _take_share(gpu, need) if shared else _take_whole(gpu, need)
            if isinstance(claims, _Obstacle):
                obstacles.append(claims)
            else:
                taken.append((gpu, claims))
            if len(taken) == count:
                return _lease(taken, shared)
        _give_up(claim for _, claims in taken for claim in claims)
        wanted = count * (1 if shared else SHARES)
        endless = not can_end(wanted, ClaimHolder.this_process().who, _accounts(large), SHARES * len(large))
        wait.write({"count": 0 if endless else wanted})
    reason = "; ".join(each.text for each in obstacles)
    leased = any(each.leased for each in obstacles)
    return Busy(reason, leased, partial(describe_gpus, devices), endless)


def _accounts(devices: Sequence[Gpu]) -> list[Account]:
    """How many shares of these GPUs each process holds and awaits."""
    found: dict[str, Account] = {}
    leased = {claim: "leased" for gpu in devices for claim in _shares(gpu) if claim.held()}
    for claim, what in {**leased, **dict.fromkeys(entries(_waits()), "wanted")}.items():
        if holder := claim.holder():
            account = found.setdefault(holder.who, Account(holder.who))
            number = getattr(account, what) + claim.note().get("count", 1)
            found[holder.who] = replace(account, **{what: number})
    return list(found.values())


def _take_whole(gpu: Gpu, need: int) -> list[Claim] | _Obstacle:
    """Takes all shares of a GPU; otherwise returns what is in the way."""
    taken: list[Claim] = []
    others: list[Claim] = []
    for claim in _shares(gpu):
        (taken if claim.take() else others).append(claim)
    if others:
        _give_up(taken)
        return _leased(gpu, others)
    if left := _server_left(gpu) or _memory_left(taken, gpu) or _unleased_use(gpu, need):
        _give_up(taken)
        return _Obstacle(f"GPU {gpu.index} {left}", leased=False)
    for claim in taken:
        claim.write({"used_bytes": gpu.used_bytes})
    return taken


def _take_share(gpu: Gpu, need: int) -> list[Claim] | _Obstacle:
    """Takes a share of a GPU; otherwise returns what is in the way."""
    shares = _shares(gpu)
    claim = next((claim for claim in shares if claim.take()), None)
    if claim is None:
        return _leased(gpu, shares)
    if use := _unleased_use(gpu, need):
        claim.give_up()
        others = [each for each in shares if each.held()]
        return _leased(gpu, others) if others else _Obstacle(f"GPU {gpu.index} {use}", leased=False)
    claim.write({"used_bytes": gpu.used_bytes})
    return [claim]


def _shares(gpu: Gpu) -> list[Claim]:
    return [Claim(_folder() / f"{gpu.uuid}-{number}") for number in range(SHARES)]


def _give_up(claims: Iterable[Claim]) -> None:
    for claim in claims:
        claim.give_up()


def _leased(gpu: Gpu, claims: Iterable[Claim]) -> _Obstacle:
    holders = dict.fromkeys(str(claim.holder() or "another run") for claim in claims)
    return _Obstacle(f"GPU {gpu.index} is leased by {', '.join(holders)}", leased=True)


def _server_left(gpu: Gpu) -> str | None:
    """A server of a killed run, on a GPU of which nobody has a share."""
    for holder in gpu.processes:
        with suppress(psutil.Error):
            if SERVER_ID in psutil.Process(holder.pid).environ():
                server = f"pid {holder.pid} ({holder.name})"
                return f"is used by {server}, a server of the harness whose run has ended"
    return None


def _memory_left(claims: Iterable[Claim], gpu: Gpu) -> str | None:
    """Memory that a killed run has left on the GPU; the run's note is left as well."""
    for claim in claims:
        note = claim.note()
        if gpu.used_bytes <= note.get("used_bytes", gpu.used_bytes) + TOLERANCE_BYTES:
            continue
        found = note.setdefault("found", time.time())
        if time.time() - found <= LEFTOVER_S:
            claim.write(note)
            return f"still has memory of {claim.holder() or 'a run'}, which was killed"
    return None


def _unleased_use(gpu: Gpu, need: int) -> str | None:
    if gpu.free_bytes >= need:
        return None
    names = [f"pid {holder.pid} ({holder.name})" for holder in gpu.processes]
    return f"is used by {', '.join(names) or 'a process that NVML does not name'}"


def _lease(taken: Iterable[tuple[Gpu, list[Claim]]], shared: bool) -> Lease:
    """The memory of a shared GPU changes with other servers, so only a whole one is watched."""
    taken = sorted(taken, key=lambda each: each[0].index)
    names = ",".join(gpu.visible_name for gpu, _ in taken)
    return Lease(
        [claim for _, claims in taken for claim in claims],
        {VISIBLE_VARIABLE: names, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        [] if shared else [gpu for gpu, _ in taken],
    )


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
