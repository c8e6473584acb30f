"""The processes of a server: finding, measuring, and ending them when their supervisor is gone."""

from __future__ import annotations

import contextlib
import time

import psutil

MARKER = "VH_SERVER_ID"  # in the environment of every server that was not forked


def processes_in(folder: str) -> list[psutil.Process]:
    """Every process whose working folder is a server's own, which nobody else has any business in.

    Neither process group nor environment would tell: descendants may leave the group, and a forked process
    shows the environment of the process that it was forked from.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.cwd().removesuffix(" (deleted)") == folder:
                found.append(process)
    return found


def kill_in(folder: str, wait_s: float = 10.0) -> list[int]:
    """Kills every process of a server; returns the ids of those that are left after `wait_s` seconds."""
    processes = processes_in(folder)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + wait_s
    while (alive := [p.pid for p in processes if _runs(p)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive


def _runs(process: psutil.Process) -> bool:
    """False for a zombie as well: it holds nothing, whenever its parent may reap it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def tree_pids(root: int) -> set[int]:
    """A process and its descendants; empty when it is gone."""
    try:
        process = psutil.Process(root)
        return {root, *(child.pid for child in process.children(recursive=True))}
    except psutil.NoSuchProcess:
        return set()


def pss_bytes(root: int) -> int:
    """Memory of a process and its descendants, in bytes: what they share counts by the share (PSS)."""
    total = 0
    for pid in tree_pids(root):
        with contextlib.suppress(psutil.Error):
            total += psutil.Process(pid).memory_full_info().pss
    return total
