"""The memory that the kernel would give a CPU server, given its NUMA node and control groups."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from vllm_harness._machine.control_groups import memory_groups, read_text

PAGE = os.sysconf("SC_PAGE_SIZE")
LIMITS = (
    ("memory.max", "memory.current"),  # cgroup v2
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),  # cgroup v1
)
FILE_CACHE = re.compile(r"^(?:total_)?(?:in)?active_file (\d+)$", re.M)
NO_LIMIT = 2**60
"""A limit to treat as none: without a limit, cgroup v1 shows a number slightly below 2**63."""


@dataclass(frozen=True)
class NodeMemory:
    """An amount of memory in bytes; `available` includes the file cache, which the kernel can reclaim."""

    total: int
    available: int


def node_memory(root: Path = Path("/")) -> NodeMemory:
    """The memory that a CPU server started by this process could use; `root` contains `proc` and `sys`.

    It is the machine's memory if only one NUMA node has any. Otherwise it is the memory of the node that vLLM
    binds its worker to: the node of the first processor that this process may use, or the first allowed node
    if that one has no memory (vLLM 0.32.0, `vllm/v1/worker/cpu_worker.py`). Control groups limit both.
    """
    machine = psutil.virtual_memory()
    memory = _node(NodeMemory(machine.total, machine.available), root)
    total, available = memory.total, memory.available
    for limit, used in _control_groups(root):
        total, available = min(total, limit), min(available, limit - used)
    return NodeMemory(total, max(0, available))


def _node(machine: NodeMemory, root: Path) -> NodeMemory:
    """The machine's memory, or that of the node that a server would be bound to."""
    nodes = sorted(_allowed(root) & _ids(read_text(root / "sys/devices/system/node/has_memory")))
    if len(nodes) < 2:
        return machine
    first = min(os.sched_getaffinity(0))
    node = next((node for node in nodes if first in _processors(node, root)), nodes[0])
    sizes = {node: _meminfo(node, root) for node in nodes}
    total, free = sizes[node].total, sizes[node].available
    # meminfo does not count the memory that the kernel has not accepted yet ("unaccepted")
    coming = max(0, machine.total - sum(size.total for size in sizes.values()))
    present = {node: max(0, _present(node, root) - sizes[node].total) for node in nodes}
    if coming and sum(present.values()):
        coming = min(present[node], coming * present[node] // sum(present.values()))
        total, free = total + coming, free + coming
    return NodeMemory(total, min(free, machine.available))


def _allowed(root: Path) -> set[int]:
    """The nodes from which this process may allocate memory."""
    match = re.search(r"^Mems_allowed_list:\s*(\S+)$", read_text(root / "proc/self/status"), re.M)
    return _ids(match[1]) if match else set()


def _processors(node: int, root: Path) -> set[int]:
    return _ids(read_text(root / f"sys/devices/system/node/node{node}/cpulist"))


def _meminfo(node: int, root: Path) -> NodeMemory:
    text = read_text(root / f"sys/devices/system/node/node{node}/meminfo")
    size = {name: int(kib) * 1024 for name, kib in re.findall(r"(\S+):\s+(\d+) kB", text)}
    parts = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
    return NodeMemory(size.get("MemTotal", 0), sum(size.get(part, 0) for part in parts))


def _present(node: int, root: Path) -> int:
    """The bytes of memory physically present on a node, whether the kernel has accepted them or not."""
    zones = re.split(r"^(?=Node )", read_text(root / "proc/zoneinfo"), flags=re.M)
    own = [zone for zone in zones if zone.startswith(f"Node {node},")]
    return PAGE * sum(int(pages) for zone in own for pages in re.findall(r"^\s+present\s+(\d+)", zone, re.M))


def _control_groups(root: Path) -> Iterator[tuple[int, int]]:
    """The memory limit and usage (without file cache) of every control group that limits this process."""
    for group in memory_groups(root):
        for folder in group.with_parents():
            yield from _limit(folder)


def _limit(group: Path) -> Iterator[tuple[int, int]]:
    for limit, usage in LIMITS:
        text = read_text(group / limit).strip()
        if text.isdigit() and int(text) < NO_LIMIT:
            cache = sum(
                int(size) for size in FILE_CACHE.findall(_own_or_total(read_text(group / "memory.stat")))
            )
            used = int(read_text(group / usage).strip() or 0)
            yield int(text), max(0, used - cache)


def _own_or_total(stat: str) -> str:
    """The lines of memory.stat that count child groups too; cgroup v1 has separate lines for that."""
    total = [line for line in stat.splitlines() if line.startswith("total_")]
    return "\n".join(total) if total else stat


def _ids(text: str) -> set[int]:
    """Parses a list of ids such as `0-2,5`."""
    spans = [part.split("-") for part in text.strip().split(",") if part]
    return {number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)}
