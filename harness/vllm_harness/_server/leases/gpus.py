"""GPUs leased whole, or by the shares that stand-ins take."""

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
"""So many stand-ins run on one GPU at most; who leases it whole takes all of its shares."""


def lease_gpus(
    count: int,
    gib: float,
    *,
    shared: bool = False,
    visible: Callable[[], list[Gpu]] = visible_gpus,
    wait_s: float | None = None,
) -> Claim:
    """Leases GPUs for a server, those with most free memory first. The lease's `env` binds it to them.

    Args:
        count: how many.
        gib: free memory of each, GiB.
        shared: a share of each, beside other servers that take shares; else each GPU whole.
        visible: the GPUs to choose from.
        wait_s: seconds to wait for others, in place of VLLM_HARNESS_LEASE_WAIT_S.

    Raises:
        NotEnoughHardware: at once, where the GPUs are too few or too small.
        WaitCannotEnd: at once, where their holders may wait for this process.
        LeaseTimeout: naming their holders.
        UsageError: CUDA_VISIBLE_DEVICES names a GPU that the machine does not have.
    """
    share = "a share of " if shared else ""
    wanted = f"{share}{count} {'GPU' if count == 1 else 'GPUs'} with {gib:g} GiB"
    return wait_for(visible, partial(_attempt, count, gib, 1 if shared else SHARES), wanted, wait_s)


def _attempt(count: int, gib: float, shares: int, devices: list[Gpu], claims: list[Claim]) -> Claim | Busy:
    """Takes all GPUs or none, so that two processes that wait never hold a part each."""
    need = int(gib * NOMINAL_SHARE * 2**30)
    large = sorted((gpu for gpu in devices if gpu.total_bytes >= need), key=lambda gpu: gpu.used_bytes)
    if len(large) < count:
        raise _too_large(count, gib, devices)
    leased = {gpu.uuid: _holders(gpu, shares, need, claims) for gpu in large}
    in_the_way = {gpu.uuid: leased[gpu.uuid] or _user(gpu, shares, need, claims) for gpu in large}
    free = [gpu for gpu in large if in_the_way[gpu.uuid] is None]
    if len(free) >= count:
        taken = sorted(free[:count], key=lambda gpu: gpu.index)
        return Claim(
            "lease",
            {gpu.uuid: shares for gpu in taken},
            {gpu.uuid: gpu.used_bytes for gpu in taken},
            {
                VISIBLE_VARIABLE: ",".join(gpu.visible_name for gpu in taken),
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            },
        )
    return Busy(
        "; ".join(f"GPU {gpu.index} {words}" for gpu in large if (words := in_the_way[gpu.uuid])),
        leased=any(leased.values()),
        figures=partial(describe_gpus, devices),
        endless=not may_wait(count * shares, SHARES * len(large), claims, leased),
    )


def used_before(lease: Claim) -> dict[str, int]:
    """Bytes in use of each GPU before it was leased whole; those of a shared one change with others."""
    whole = [name for name, shares in lease.amounts.items() if lease.env and shares == SHARES]
    return {name: lease.used[name] for name in whole}


def _holders(gpu: Gpu, shares: int, need: int, claims: list[Claim]) -> str | None:
    """The leases that keep a GPU from being leased."""
    held = [claim for claim in claims if claim.kind == "lease" and gpu.uuid in claim.amounts]
    too_many = sum(claim.amounts[gpu.uuid] for claim in held) + shares > SHARES
    if held and (too_many or gpu.free_bytes < need):
        return f"is leased by {', '.join(dict.fromkeys(map(str, held)))}"
    return None


def _user(gpu: Gpu, shares: int, need: int, claims: list[Claim]) -> str | None:
    """What keeps a GPU from being leased without a lease: servers of killed runs, processes of others."""
    named = [f"pid {process.pid} ({process.name})" for process in gpu.processes]
    if shares == SHARES:
        for process, name in zip(gpu.processes, named, strict=True):
            with suppress(psutil.Error):
                if SERVER_ID in psutil.Process(process.pid).environ():
                    return f"is used by {name}, a server of the harness whose run has ended"
        for claim in claims:
            before = claim.used.get(gpu.uuid, gpu.used_bytes)
            if claim.kind == "left" and gpu.used_bytes > before + TOLERANCE_BYTES:
                return f"still has memory of {claim}, which was killed"
    if gpu.free_bytes < need:
        return f"is used by {', '.join(named) or 'a process that NVML does not name'}"
    return None


def _too_large(count: int, gib: float, devices: Sequence[Gpu]) -> NotEnoughHardware:
    present = ", ".join(f"GPU {gpu.index} ({gpu.name}, {gpu.total_bytes / 2**30:.1f} GiB)" for gpu in devices)
    return NotEnoughHardware(
        f"a server needs {count} x {gib:g} GiB of GPU memory; this machine has {present or 'no GPU'}",
        hint=f"run a smaller model, lower the entry's hardware need, or check what {VISIBLE_VARIABLE} hides",
    )
