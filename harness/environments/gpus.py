"""The NVIDIA GPUs of this machine, through NVML."""

from __future__ import annotations

from dataclasses import dataclass

import pynvml


@dataclass(frozen=True)
class Gpu:
    """One GPU, memory in bytes."""

    index: int
    name: str
    total: int
    free: int
    driver: str


def gpus() -> list[Gpu]:
    """The GPUs there are; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        return [_gpu(index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int, driver: str) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(index, pynvml.nvmlDeviceGetName(handle), int(memory.total), int(memory.free), driver)
