"""The machine's GPUs, from NVML: their memory, the processes that use it, and waiting for its release.

The variable VLLM_HARNESS_GPUS_FILE may name a file that replaces NVML: a JSON list of objects with the fields
of `Gpu`. It is for tests, and for machines without NVML. The file is read again at each use.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pynvml
from pydantic import TypeAdapter, ValidationError

from vllm_harness._errors import UsageError

TABLE_VARIABLE = "VLLM_HARNESS_GPUS_FILE"
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
TOLERANCE_BYTES = 512 * 2**20
NOMINAL_SHARE = 0.97
"""The share of the needed GiB that is enough: a card sold with 80 GB has about 79.6 GiB."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a GPU; `used_bytes` is 0 if NVML does not report its memory."""

    pid: int
    name: str
    used_bytes: int = 0


@dataclass(frozen=True)
class Gpu:
    """A GPU; `index` is NVML's, which equals CUDA's under CUDA_DEVICE_ORDER=PCI_BUS_ID."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int = 0
    processes: tuple[GpuProcess, ...] = ()

    @property
    def free_bytes(self) -> int:
        """The memory that no process uses."""
        return self.total_bytes - self.used_bytes

    @property
    def visible_name(self) -> str:
        """The GPU's name in CUDA_VISIBLE_DEVICES; for a whole GPU, older vLLMs only accept the index."""
        return self.uuid if self.uuid.startswith("MIG-") else str(self.index)

    def describe(self) -> str:
        """Describes its memory and users: `GPU 0 12.0 of 80.0 GiB used by pid 7 (python, 11.5 GiB)`."""
        users = [f"pid {p.pid} ({p.name}, {p.used_bytes / 2**30:.1f} GiB)" for p in self.processes]
        used, total = self.used_bytes / 2**30, self.total_bytes / 2**30
        return f"GPU {self.index} {used:.1f} of {total:.1f} GiB used by {', '.join(users) or 'no process'}"


def gpus() -> list[Gpu]:
    """The CUDA devices of this machine; empty without a driver. Raises UsageError if the table is invalid."""
    if table := os.environ.get(TABLE_VARIABLE):
        return _table(Path(table))
    try:
        with _nvml():
            return [_gpu(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """The devices in CUDA_VISIBLE_DEVICES (NVML indices, UUIDs or UUID prefixes), in the order listed there.

    If the variable is not set, these are all devices. Raises UsageError if it names an unknown device.
    """
    devices = gpus()
    if VISIBLE_VARIABLE not in environ:
        return devices
    names = [name.strip() for name in environ[VISIBLE_VARIABLE].split(",") if name.strip()]
    return [_named(name, devices) for name in names if name not in {"-1", "NoDevFiles"}]


def driver_version() -> str | None:
    """The version of the NVIDIA driver; None without a driver."""
    try:
        with _nvml():
            return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def describe_gpus(devices: Sequence[Gpu] | None = None) -> str:
    """Describes the memory and processes of each GPU, all in one line."""
    devices = gpus() if devices is None else devices
    return "; ".join(gpu.describe() for gpu in devices) or "no CUDA device"


def describe_device(device: str) -> str:
    """Describes a server's device, for records: `cpu`, or this machine's GPUs if it is `cuda`."""
    return describe_gpus() if device == "cuda" else device


def wait_for_memory(before: Mapping[str, int], *, limit_s: float) -> list[Gpu]:
    """Waits until no GPU uses 512 MiB more than `before` (UUID -> bytes); returns the GPUs that still do."""
    deadline = time.monotonic() + limit_s
    while True:
        held = [
            gpu for gpu in gpus() if gpu.used_bytes > before.get(gpu.uuid, gpu.used_bytes) + TOLERANCE_BYTES
        ]
        if not held or time.monotonic() >= deadline:
            return held
        time.sleep(0.2)


def _table(path: Path) -> list[Gpu]:
    try:
        return TypeAdapter(list[Gpu]).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"{TABLE_VARIABLE} names {path}, which is not a table of GPUs: {error}",
            hint="write a JSON list of objects with index, uuid, name and total_bytes, or unset the variable",
        ) from None


def _named(name: str, devices: Sequence[Gpu]) -> Gpu:
    for gpu in devices:
        if name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name)):
            return gpu
    if name.startswith("MIG-"):
        with suppress(pynvml.NVMLError), _nvml():
            return _gpu(pynvml.nvmlDeviceGetHandleByUUID(name))
    present = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in devices) or "none"
    raise UsageError(
        f"{VISIBLE_VARIABLE} names GPU {name}, which this machine does not have",
        hint=f"use one of those that it has: {present}",
    )


@contextmanager
def _nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: Any) -> Gpu:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    whole = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if uuid.startswith("MIG-") else handle
    return Gpu(
        index=int(pynvml.nvmlDeviceGetIndex(whole)),
        uuid=uuid,
        name=str(pynvml.nvmlDeviceGetName(whole)),
        total_bytes=int(memory.total),
        used_bytes=int(memory.used),
        processes=tuple(_processes(handle)),
    )


def _processes(handle: Any) -> list[GpuProcess]:
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return []
    return [GpuProcess(p.pid, _process_name(p.pid), int(p.usedGpuMemory or 0)) for p in processes]


def _process_name(pid: int) -> str:
    with suppress(psutil.Error):
        return psutil.Process(pid).name()
    return "in another container"
