"""Leases of GPUs: whole GPUs, or shares of one for stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import psutil

from vllm_harness._machine.gpus import (
    NOMINAL_SHARE,
    TOLERANCE_BYTES,
    VISIBLE_VARIABLE,
    Gpu,
    describe_gpus,
    visible_gpus,
)
from vllm_harness._scripted.in_server.vllm_harness_names import SERVER_ID
from vllm_harness._server.leases.claims import Claim, may_wait
from vllm_harness._server.leases.waiting import Busy, NotEnoughHardware, wait_for

SHARES = 16
"""How many stand-ins may run on one GPU; a server that leases a whole GPU gets all shares."""


def lease_gpus(
    count: int,
    gib: float,
    *,
    shared: bool = False,
    visible: Callable[[], list[Gpu]] = visible_gpus,
    wait_s: float | None = None,
) -> Claim:
    """Leases the GPUs with the most free memory for a server; `Claim.env` binds the server to them.

    Args:
        count: number of GPUs.
        gib: memory that must be free on each GPU, GiB.
        shared: lease a share of each GPU instead of whole GPUs.
        visible: returns the GPUs to choose from.
        wait_s: seconds to wait for leases of others, instead of VLLM_HARNESS_LEASE_WAIT_S.

    Raises:
        NotEnoughHardware: the GPUs are too few or too small; raised without a wait.
        WaitCannotEnd: the holders of the GPUs may be waiting for this process; raised without a wait.
        LeaseTimeout: the holders did not release the GPUs in time; the message names the holders.
        UsageError: CUDA_VISIBLE_DEVICES names a GPU that the machine does not have.
    """
    share = "a share of " if shared else ""
    wanted = f"{share}{count} {'GPU' if count == 1 else 'GPUs'} with {gib:g} GiB"
    return wait_for(visible, partial(_attempt, count, gib, 1 if shared else SHARES), wanted, wait_s)


def _attempt(count: int, gib: float, shares: int, devices: list[Gpu], claims: list[Claim]) -> Claim | Busy:
    """Claims all GPUs or none, so that no two waiting processes hold only a part of what they need."""
    need = int(gib * NOMINAL_SHARE * 2**30)
    large = sorted((gpu for gpu in devices if gpu.total_bytes >= need), key=lambda gpu: gpu.used_bytes)
    if len(large) < count:
        raise _too_large(count, gib, devices)
    leased = {gpu.uuid: _holders(gpu, shares, need, claims) for gpu in large}
    obstacles = {gpu.uuid: leased[gpu.uuid] or _user(gpu, shares, need, claims) for gpu in large}
    free = [gpu for gpu in large if obstacles[gpu.uuid] is None]
    if len(free) >= count:
        chosen = sorted(free[:count], key=lambda gpu: gpu.index)
        return Claim(
            "lease",
            {gpu.uuid: shares for gpu in chosen},
            {gpu.uuid: gpu.used_bytes for gpu in chosen},
            {
                VISIBLE_VARIABLE: ",".join(gpu.visible_name for gpu in chosen),
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            },
        )
    return Busy(
        "; ".join(f"GPU {gpu.index} {obstacle}" for gpu in large if (obstacle := obstacles[gpu.uuid])),
        leased=any(leased.values()),
        figures=partial(describe_gpus, devices),
        endless=not may_wait(count * shares, SHARES * len(large), claims, leased),
    )


def used_before(lease: Claim) -> dict[str, int]:
    """The bytes in use on each GPU before it was leased as a whole; shared GPUs are left out."""
    whole = [name for name, shares in lease.amounts.items() if lease.env and shares == SHARES]
    return {name: lease.used[name] for name in whole}


def _holders(gpu: Gpu, shares: int, need: int, claims: list[Claim]) -> str | None:
    """Describes the leases because of which a GPU cannot be leased; None if there is none."""
    held = [claim for claim in claims if claim.kind == "lease" and gpu.uuid in claim.amounts]
    too_many = sum(claim.amounts[gpu.uuid] for claim in held) + shares > SHARES
    if held and (too_many or gpu.free_bytes < need):
        return f"is leased by {', '.join(dict.fromkeys(map(str, held)))}"
    return None


def _user(gpu: Gpu, shares: int, need: int, claims: list[Claim]) -> str | None:
    """Describes the processes without a lease that use a GPU and so prevent a lease; None if none does."""
    named = [f"pid {process.pid} ({process.name})" for process in gpu.processes]
    if shares == SHARES:
        for process, name in zip(gpu.processes, named, strict=True):
            with suppress(psutil.Error):
                if SERVER_ID in psutil.Process(process.pid).environ():
                    return f"is used by {name}, a server of the harness whose run has ended"
        for claim in claims:
            before = claim.used.get(gpu.uuid, gpu.used_bytes)
            if claim.kind == "left" and gpu.used_bytes > before + TOLERANCE_BYTES:
                return f"still has memory allocated by {claim}, which was killed"
    if gpu.free_bytes < need:
        return f"is used by {', '.join(named) or 'a process that NVML does not name'}"
    return None


def _too_large(count: int, gib: float, devices: Sequence[Gpu]) -> NotEnoughHardware:
    present = ", ".join(f"GPU {gpu.index} ({gpu.name}, {gpu.total_bytes / 2**30:.1f} GiB)" for gpu in devices)
    return NotEnoughHardware(
        f"a server needs {count} x {gib:g} GiB of GPU memory; this machine has {present or 'no GPU'}",
        hint=f"run a smaller model, lower the entry's hardware need, or check what {VISIBLE_VARIABLE} hides",
    )
