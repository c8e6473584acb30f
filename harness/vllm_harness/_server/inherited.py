"""What a process hands on to the processes that it starts, beside its variables and open files.

A process that serves others, as the fork server does, may only serve those that would hand on the same.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil

from vllm_harness._machine.control_groups import read_text

# the beginnings of the lines of /proc/PID/status that a child inherits, and the files that it inherits whole
STATUS = ("Umask", "Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp", "Cpus_", "Mems_", "THP_enabled")
FILES = ("limits", "cgroup", "oom_score_adj", "personality", "attr/current")


def inherited() -> dict[str, Any]:
    """The limits, priorities, rights, name spaces and control groups that this thread hands on, by name."""
    thread = Path("/proc/thread-self")
    status = read_text(thread / "status").splitlines()
    root = Path("/").stat()
    return {
        "status": [line for line in status if line.startswith(STATUS)],
        **{name: read_text(thread / name) for name in FILES},
        "name spaces": sorted(str(space.readlink()) for space in (thread / "ns").iterdir()),
        "root folder": [root.st_dev, root.st_ino],
        "priority": [os.getpriority(os.PRIO_PROCESS, 0), *psutil.Process().ionice()],
        "scheduler": [os.sched_getscheduler(0), os.sched_getparam(0).sched_priority],
        "memory policy": read_text(thread / "numa_maps").partition("\n")[0].split(" ")[1:2],
    }
