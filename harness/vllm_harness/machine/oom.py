"""The kernel's count of OOM kills in this process's control group."""

from __future__ import annotations

from pathlib import Path

COUNTERS = ("memory.events", "memory.oom_control")


def oom_kills(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """OOM kills so far, in this process's control groups (v1 or v2) and in the whole system."""
    total = _count(Path("/proc/vmstat"), "oom_kill")
    try:
        groups = proc.read_text().splitlines()
    except OSError:
        return total
    for line in groups:
        _, controllers, path = line.split(":", 2)
        base = root / "memory" if "memory" in controllers.split(",") else root
        for name in COUNTERS:
            total += _count(base / path.lstrip("/") / name, "oom_kill")
    return total


def _count(path: Path, key: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(value) for name, _, value in (line.partition(" ") for line in lines) if name == key)
