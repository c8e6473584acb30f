"""The kernel's count of OOM kills in this process's control groups."""

from __future__ import annotations

import re
from pathlib import Path

from vllm_harness._machine.control_groups import memory_groups, read_text

COUNTERS = ("memory.events", "memory.oom_control")
KILLS = re.compile(r"^oom_kill (\d+)$", re.M)


def oom_kills(root: Path = Path("/")) -> int:
    """OOM kills so far, in this process's control groups (version 1 or 2) and in the whole system.

    Args:
        root: where `proc` and `sys` are.
    """
    counters = [group.folder / name for group in memory_groups(root) for name in COUNTERS]
    texts = map(read_text, [root / "proc/vmstat", *counters])
    return sum(int(kills) for text in texts for kills in KILLS.findall(text))
