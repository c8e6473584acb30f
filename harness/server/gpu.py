"""GPU memory by NVML: what is used, who holds it, and waiting until a server's share is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil
import pynvml

TOLERANCE_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Holder:
    """A process on a GPU; `used_bytes` is 0 where NVML does not tell."""

    pid: int
    name: str
    used_bytes: int


@dataclass(frozen=True)
class Gpu:
    """One device as NVML sees it; memory in bytes."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    holders: tuple[Holder, ...]


def gpus() -> list[Gpu]:
    """The CUDA devices of this machine; empty without driver or device."""
    try:
        with _nvml():
            return [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


def driver_version() -> str | None:
    """The NVIDIA driver's version, None without one."""
    try:
        with _nvml():
            return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def describe_gpus(devices: Sequence[Gpu] | None = None) -> str:
    """One line: memory of each GPU and who holds it."""
    devices = gpus() if devices is None else devices
    if not devices:
        return "no CUDA device"
    return "; ".join(
        f"GPU {gpu.index} {gpu.used_bytes / 2**30:.1f} of {gpu.total_bytes / 2**30:.1f} GiB used by "
        + (
            ", ".join(f"pid {h.pid} ({h.name}, {h.used_bytes / 2**30:.1f} GiB)" for h in gpu.holders)
            or "nobody"
        )
        for gpu in devices
    )


def wait_for_memory(
    baseline: Sequence[Gpu],
    *,
    limit_s: float,
    read: Callable[[], list[Gpu]] = gpus,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Gpu]:
    """Waits until every GPU uses no more than it did in `baseline` plus 512 MiB.

    Returns:
        the GPUs that still use more when `limit_s` seconds are over; empty when all is back.
    """
    before = {gpu.uuid: gpu.used_bytes for gpu in baseline}
    deadline = clock() + limit_s
    while True:
        held = [g for g in read() if g.used_bytes > before.get(g.uuid, g.used_bytes) + TOLERANCE_BYTES]
        if not held or clock() >= deadline:
            return held
        sleep(0.2)


@contextmanager
def _nvml():  # type: ignore[no-untyped-def]
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index=index,
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        name=str(pynvml.nvmlDeviceGetName(handle)),
        total_bytes=int(memory.total),
        used_bytes=int(memory.used),
        holders=tuple(_holders(handle)),
    )


def _holders(handle: object) -> list[Holder]:
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return []
    return [Holder(p.pid, _process_name(p.pid), int(p.usedGpuMemory or 0)) for p in processes]


def _process_name(pid: int) -> str:
    with suppress(psutil.Error):
        return psutil.Process(pid).name()
    return "in another container"
