"""What this machine can run, and what is missing, each with its remedy."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from vllm_harness.environments import Environment, assets, installed, locks, made, release
from vllm_harness.environments.installer import InstallError, uv_path
from vllm_harness.environments.sources import hub_reachable
from vllm_harness.errors import HarnessError
from vllm_harness.files.paths import cache_dir
from vllm_harness.machine.gpus import driver_version, gpus
from vllm_harness.machine.node_memory import node_memory
from vllm_harness.server.leases.allocation import BOUND_VARIABLE, capacity

GIB = 2**30
ENVIRONMENT_DISK = 6 * GIB
"""What a first CPU environment and the assets take, with uv's cache."""


@dataclass(frozen=True)
class Check:
    """One line of the report; `remedy` says what to do where something is missing."""

    topic: str
    state: Literal["ok", "missing"]
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Report:
    """All checks, and which lanes can run once the remedies are followed."""

    checks: list[Check]
    can_run: list[str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def examine() -> Report:
    """Looks at this machine; nothing is made or fetched, and vllm is not imported."""
    environments = list(_environments())
    checks = [
        Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
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
    return Report(checks, _can_run(environments))


def in_the_way(servers: int) -> str:
    """What keeps so many forked stand-ins from running here at once; empty where nothing does."""
    wanted = [_processor()] if any(_environments()) else [_processor(), _uv(), _disk()]
    missing = [check for check in wanted if check.state == "missing"]
    if capacity().in_all < servers:
        missing.append(_memory())
    return "; ".join(f"{check.topic}: {check.found}" for check in missing)


def _processor() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    flags = set(re.findall(r"avx512f|avx2", _text(Path("/proc/cpuinfo"))))
    found = f"{cores} cores, {', '.join(sorted(flags)) or 'no AVX2'}"
    if platform.machine() != "x86_64" or flags:
        return Check("processor", "ok", found)
    return Check("processor", "missing", found, "vLLM's CPU build needs AVX2: use another machine")


def _memory() -> Check:
    """By the figures that the leases of CPU servers go by."""
    memory, machine, fit = node_memory(), psutil.virtual_memory().total, capacity()
    found = f"{_gib(memory.total)}, {_gib(memory.available)} free"
    if memory.total < machine:
        found += f" (of the machine's {_gib(machine)}: a NUMA node, or a control group's limit)"
    if bound := os.environ.get(BOUND_VARIABLE):
        found += f", bound to {bound} GiB by {BOUND_VARIABLE}"
    found += f": holds {fit.in_all} forked stand-ins of {fit.each_gib:g} GiB, {fit.now} more now"
    if fit.in_all:
        return Check("memory", "ok", found)
    return Check("memory", "missing", found, "free memory, or raise the limit that is named")


def _gpus() -> Iterator[Check]:
    devices = gpus()
    for gpu in devices:
        free = gpu.total_bytes - gpu.used_bytes
        found = f"{gpu.name}, {_gib(gpu.total_bytes)}, {_gib(free)} free"
        yield Check(f"GPU {gpu.index}", "ok", f"{found}, driver {driver_version()}")
    if not devices:
        remedy = "the scripted lane and smollm2-135m need none; other models need one for the live lane"
        yield Check("GPU", "missing", "no CUDA device", remedy)


def _environments() -> Iterator[Environment]:
    if installed.current_has_vllm():
        try:
            yield installed.environment()
        except HarnessError:
            return
    yield from (entry.environment for entry in made.made() if entry.environment)


def _vllm(environments: list[Environment]) -> Iterator[Check]:
    for environment in environments:
        yield Check("vLLM", "ok", f"{environment.describe()}, Python {environment.python_version}")
    newest = next((lock for lock in locks.locks() if lock.device == "cpu"), None)
    if not environments and newest:
        yield Check(
            "vLLM", "missing", "no environment", f"vllm-harness env create {newest.version} --device cpu"
        )
    if newest and not release.torch_at_hand(newest):
        found = f"no folder of wheels with torch {newest.torch}"
        yield Check("CPU torch", "missing", found, "none is needed where uv can reach PyTorch's CPU index")


def _uv() -> Check:
    try:
        return Check("uv", "ok", str(uv_path()))
    except InstallError as error:
        return Check("uv", "missing", error.message, error.hint)


def _npm() -> Check:
    if npm := shutil.which("npm"):
        return Check("npm", "ok", npm)
    return Check("npm", "missing", "not on PATH", "none is needed: one is taken from a Python package then")


def _assets() -> Iterator[Check]:
    for name in assets.definitions():
        if fetched := assets.cached(name):
            yield Check(f"asset {name}", "ok", f"{fetched.size / 1e6:.1f} MB from {fetched.source}")
        else:
            yield Check(f"asset {name}", "missing", "not in the cache", f"vllm-harness assets fetch {name}")


def _hub() -> Check:
    if hub_reachable():
        return Check("model hub", "ok", "reachable")
    remedy = "none is needed for stand-ins and smollm2-135m, which come from package registries then"
    return Check("model hub", "missing", "not reachable", remedy)


def _disk() -> Check:
    free = shutil.disk_usage(cache_dir()).free
    found = f"{_gib(free)} free at {cache_dir()}"
    if free >= ENVIRONMENT_DISK:
        return Check("disk", "ok", found)
    remedy = f"a first environment takes {_gib(ENVIRONMENT_DISK)}: free some, or set VLLM_HARNESS_CACHE"
    return Check("disk", "missing", found, remedy)


def _can_run(environments: list[Environment]) -> list[str]:
    try:
        uv_path()
    except InstallError:
        if not environments:
            return []
    lanes = ["scripted lane: every model with a stand-in", "live lane: smollm2-135m"]
    return [*lanes, "live lane: models that fit the GPUs (-m gpu)"] if gpus() else lanes


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
