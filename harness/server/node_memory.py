"""Memory of the NUMA node that vLLM binds a CPU server to, as vLLM itself counts it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import psutil

SYSTEM = Path("/sys/devices/system")
LIMITS = (
    ("memory.max", "memory.current"),  # control groups, version 2
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),  # version 1
)


@dataclass(frozen=True)
class NodeMemory:
    """In bytes; `available` counts what the kernel can take back from its file cache."""

    total: int
    available: int


def node_memory() -> NodeMemory:
    """The node of the first processor this process may run on, bounded by the control group's limit."""
    memory = _node() or NodeMemory(psutil.virtual_memory().total, psutil.virtual_memory().available)
    limit, usage = _control_group()
    if limit >= memory.total:
        return memory
    return NodeMemory(limit, max(0, min(memory.available, limit - usage)))


def _node(system: Path = SYSTEM) -> NodeMemory | None:
    if not hasattr(os, "sched_getaffinity"):
        return None
    processor = min(os.sched_getaffinity(0))
    for file in system.glob(f"cpu/cpu{processor}/node*/meminfo"):
        found = re.findall(r"(\S+):\s+(\d+) kB", file.read_text())
        size = {name: int(kib) * 1024 for name, kib in found}
        parts = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
        return NodeMemory(size["MemTotal"], sum(size.get(part, 0) for part in parts))
    return None


def _control_group(root: Path = Path("/sys/fs/cgroup")) -> tuple[int, int]:
    """Limit and usage of this process's control group; a limit no machine reaches where there is none."""
    lines = Path("/proc/self/cgroup")
    for line in lines.read_text().splitlines() if lines.exists() else ():
        _, controllers, path = line.split(":", 2)
        base = root / "memory" if "memory" in controllers.split(",") else root
        for limit, usage in LIMITS:
            # in a container its own group is mounted as the root
            for group in (base / path.lstrip("/"), base):
                if (text := _text(group / limit)).isdigit():
                    return int(text), int(_text(group / usage) or 0)
    return 2**63, 0


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
