"""The memory control groups of this process, of version 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ControlGroup:
    """A group that this process is in.

    Attributes:
        top: where the hierarchy is mounted.
        folder: the group's own folder below it; in a container the group may be mounted as `top` itself.
    """

    top: Path
    folder: Path

    def with_parents(self) -> list[Path]:
        """The folders of the group and of all above it, the own one first."""
        groups = dict.fromkeys((self.folder, *self.folder.parents, self.top))
        return [group for group in groups if group.is_relative_to(self.top)]


def memory_groups(root: Path = Path("/")) -> Iterator[ControlGroup]:
    """The groups that bound or count this process's memory.

    Args:
        root: where `proc` and `sys` are.
    """
    mounted = root / "sys/fs/cgroup"
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = mounted / "memory" if controllers else mounted
        yield ControlGroup(top, top / path.lstrip("/"))


def read_text(path: Path) -> str:
    """The text of a file of the kernel's; empty where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
