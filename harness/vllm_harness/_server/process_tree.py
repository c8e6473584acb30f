"""Finds a server's processes, and ends them if their supervisor is gone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time

import psutil

from vllm_harness._scripted.in_server.vllm_harness_names import SERVER_ID
from vllm_harness._server import blocks
from vllm_harness._server.supervisor import started


def processes_in(folder: str) -> list[psutil.Process]:
    """All processes whose working directory is a server's own folder or below it.

    Process groups and variables do not identify them: descendants may leave the group, and a forked
    process shows the environment of the process that it was forked from.
    """
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            cwd = process.cwd().removesuffix(" (deleted)")
            if cwd == folder or cwd.startswith(f"{folder}/"):
                processes.append(process)
    return processes


def ids_alive() -> set[str]:
    """The ids of all servers, of any run, in whose folder a process works."""
    ids = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            ids |= set(re.findall(r"/vh-([0-9a-f]+)(?=/| |$)", process.cwd()))
    return ids


def processes_of(server_id: str, folder: str) -> list[psutil.Process]:
    """All processes that work in a server's folder, or have its id in a variable or in a mapped block."""
    inside = processes_in(folder)
    known = {process.pid for process in inside}
    return inside + [p for p in psutil.process_iter() if p.pid not in known and _belongs_to(p, server_id)]


def _belongs_to(process: psutil.Process, server_id: str) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        if process.environ().get(SERVER_ID) == server_id:
            return True
    return any(blocks.server_of(name) == server_id for name in blocks.mapped([process.pid]))


def clear(server_id: str, folder: str, earlier_blocks: list[str], wait_s: float = 10.0) -> list[int]:
    """Ends and removes all remains of a server whose supervisor was killed; returns the ids of survivors.

    Shared memory from before the server is kept. The wait for the processes to end, at most `wait_s` seconds,
    begins after the first kill, since finding them may take long.
    """
    native = blocks.Native(earlier_blocks)
    deadline: float | None = None
    while left := [p for p in processes_of(server_id, folder) if p.pid != os.getpid() and started(p.pid)]:
        pids = [process.pid for process in left]
        native.look(lambda: pids, again=True)  # noqa: B023
        if deadline is not None and time.monotonic() > deadline:
            break
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        deadline = deadline or time.monotonic() + wait_s
        time.sleep(0.02)
    blocks.remove_of(server_id, native.blocks)
    shutil.rmtree(folder, ignore_errors=True)
    return [process.pid for process in left]


def tree_pids(root: int) -> set[int]:
    """The ids of a process and its descendants; empty if the process is gone."""
    try:
        process = psutil.Process(root)
        return {root, *(child.pid for child in process.children(recursive=True))}
    except psutil.NoSuchProcess:
        return set()
