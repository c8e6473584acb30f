"""The processes of a server: found, measured, and ended where their supervisor is gone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time

import psutil

from vllm_harness._scripted.in_server.vllm_harness_names import SERVER_ID
from vllm_harness._server import blocks


def processes_in(folder: str) -> list[psutil.Process]:
    """Every process whose working folder is a server's own, or below it: no other process works there.

    Neither process group nor environment would do: descendants may leave the group, and a forked process
    shows the environment of the process that it was forked from.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            place = process.cwd().removesuffix(" (deleted)")
            if place == folder or place.startswith(f"{folder}/"):
                found.append(process)
    return found


def ids_alive() -> set[str]:
    """Ids of the servers of all runs that have a process in their folder."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            found |= set(re.findall(r"/vh-([0-9a-f]+)(?=/| |$)", process.cwd()))
    return found


def processes_of(server_id: str, folder: str) -> list[psutil.Process]:
    """Every process of a server: in its folder, started with its id, or with a block of its id mapped."""
    inside = processes_in(folder)
    known = {process.pid for process in inside}
    return inside + [p for p in psutil.process_iter() if p.pid not in known and _is_of(p, server_id)]


def _is_of(process: psutil.Process, server_id: str) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        if process.environ().get(SERVER_ID) == server_id:
            return True
    return any(blocks.server_of(name) == server_id for name in blocks.mapped([process.pid]))


def clear(server_id: str, folder: str, earlier_blocks: list[str], wait_s: float = 10.0) -> list[int]:
    """Ends and removes what is left of a server whose supervisor was killed; returns ids of survivors.

    Args:
        server_id, folder: of the server.
        earlier_blocks: shared memory from before the server.
        wait_s: seconds to wait for its processes, once they are killed: to find them takes long on a
            machine that is very busy.
    """
    native = blocks.Native(earlier_blocks)
    deadline: float | None = None
    while left := [p for p in processes_of(server_id, folder) if p.pid != os.getpid() and _runs(p)]:
        pids = [process.pid for process in left]
        native.look(lambda: pids, again=True)  # noqa: B023
        if deadline is not None and time.monotonic() > deadline:
            break
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        deadline = deadline or time.monotonic() + wait_s
        time.sleep(0.02)
    blocks.remove_of(server_id, native.found)
    shutil.rmtree(folder, ignore_errors=True)
    return [process.pid for process in left]


def _runs(process: psutil.Process) -> bool:
    """Whether a process runs; a zombie does not: it holds nothing, whenever its parent reaps it."""
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
    """Memory of a process and its descendants, in bytes; shared pages count in proportion (PSS)."""
    total = 0
    for pid in tree_pids(root):
        with contextlib.suppress(psutil.Error):
            total += psutil.Process(pid).memory_full_info().pss
    return total
