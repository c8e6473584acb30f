"""The memory that the kernel would give a CPU server: by its NUMA node and the control groups."""

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
    ("memory.max", "memory.current"),  # control groups, version 2
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),  # version 1
)
FILE_CACHE = re.compile(r"^(?:total_)?(?:in)?active_file (\d+)$", re.M)
NO_LIMIT = 2**60
"""Version 1 shows a number somewhat below 2**63 where no limit is set."""


@dataclass(frozen=True)
class NodeMemory:
    """In bytes; `available` includes the file cache, which the kernel can take back."""

    total: int
    available: int


def node_memory(root: Path = Path("/")) -> NodeMemory:
    """The memory that a CPU server started by this process could use.

    With one node that has memory it is the machine's. With several it is that of the node that vLLM binds its
    worker to: of the first processor this process may run on, or the first allowed one where that has none
    (vLLM 0.32.0, `vllm/v1/worker/cpu_worker.py`). Limits of control groups bound both.

    Args:
        root: where `proc` and `sys` are.
    """
    machine = psutil.virtual_memory()
    memory = _node(NodeMemory(machine.total, machine.available), root)
    total, available = memory.total, memory.available
    for limit, used in _control_groups(root):
        total, available = min(total, limit), min(available, limit - used)
    return NodeMemory(total, max(0, available))


def _node(machine: NodeMemory, root: Path) -> NodeMemory:
    """The machine's memory, or the share of the node that a server would be bound to."""
    nodes = sorted(_allowed(root) & _ids(read_text(root / "sys/devices/system/node/has_memory")))
    if len(nodes) < 2:
        return machine
    own = [node for node in nodes if _processors(node, root) & {min(os.sched_getaffinity(0))}]
    node = own[0] if own else nodes[0]
    sizes = {each: _meminfo(each, root) for each in nodes}
    total, free = sizes[node].total, sizes[node].available
    # memory that the kernel has not accepted yet ("unaccepted") is missing in meminfo
    coming = max(0, machine.total - sum(size.total for size in sizes.values()))
    present = {each: max(0, _present(each, root) - sizes[each].total) for each in nodes}
    if coming and sum(present.values()):
        coming = min(present[node], coming * present[node] // sum(present.values()))
        total, free = total + coming, free + coming
    return NodeMemory(total, min(free, machine.available))


def _allowed(root: Path) -> set[int]:
    """The nodes that the process may take memory from."""
    found = re.search(r"^Mems_allowed_list:\s*(\S+)$", read_text(root / "proc/self/status"), re.M)
    return _ids(found[1]) if found else set()


def _processors(node: int, root: Path) -> set[int]:
    return _ids(read_text(root / f"sys/devices/system/node/node{node}/cpulist"))


def _meminfo(node: int, root: Path) -> NodeMemory:
    text = read_text(root / f"sys/devices/system/node/node{node}/meminfo")
    size = {name: int(kib) * 1024 for name, kib in re.findall(r"(\S+):\s+(\d+) kB", text)}
    parts = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
    return NodeMemory(size.get("MemTotal", 0), sum(size.get(part, 0) for part in parts))


def _present(node: int, root: Path) -> int:
    """Bytes of a node that are physically present, accepted by the kernel or not."""
    zones = re.split(r"^(?=Node )", read_text(root / "proc/zoneinfo"), flags=re.M)
    own = [zone for zone in zones if zone.startswith(f"Node {node},")]
    return PAGE * sum(int(pages) for zone in own for pages in re.findall(r"^\s+present\s+(\d+)", zone, re.M))


def _control_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and usage, without file cache, of every control group that bounds this process."""
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
    """The lines that count the groups below as well: version 1 has both."""
    total = [line for line in stat.splitlines() if line.startswith("total_")]
    return "\n".join(total) if total else stat


def _ids(text: str) -> set[int]:
    """`0-2,5` as numbers."""
    spans = [part.split("-") for part in text.strip().split(",") if part]
    return {number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)}
