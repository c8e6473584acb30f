"""The memory control groups of this process (cgroup v1 and v2), and the OOM kills that they count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COUNTERS = ("memory.events", "memory.oom_control")
KILLS = re.compile(r"^oom_kill (\d+)$", re.M)


@dataclass(frozen=True)
class ControlGroup:
    """A control group that this process is in.

    Attributes:
        top: the mount point of the control group hierarchy.
        folder: the group's folder below `top`; in a container, the group itself may be mounted as `top`.
    """

    top: Path
    folder: Path

    def with_parents(self) -> list[Path]:
        """The folders of the group and of all groups above it, starting with its own."""
        groups = dict.fromkeys((self.folder, *self.folder.parents, self.top))
        return [group for group in groups if group.is_relative_to(self.top)]


def memory_groups(root: Path = Path("/")) -> Iterator[ControlGroup]:
    """The groups that limit or count this process's memory; `root` contains `proc` and `sys`."""
    mounted = root / "sys/fs/cgroup"
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = mounted / "memory" if controllers else mounted
        yield ControlGroup(top, top / path.lstrip("/"))


def oom_kills(root: Path = Path("/")) -> int:
    """The number of OOM kills so far, counted in this process's groups and in the whole system."""
    counters = [group.folder / name for group in memory_groups(root) for name in COUNTERS]
    texts = map(read_text, [root / "proc/vmstat", *counters])
    return sum(int(kills) for text in texts for kills in KILLS.findall(text))


def read_text(path: Path) -> str:
    """The text of a kernel file (in /proc or /sys); empty if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
