"""Finds what servers have left behind on the machine: processes, ports, shared memory, folders."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from vllm_harness._server import blocks
from vllm_harness._server.leases.ports import is_free, listeners
from vllm_harness._server.process_tree import ids_alive

FOLDER_NAME = re.compile("vh-[0-9a-f]{12}")
Pids = Callable[[], set[int]]


class Machine:
    """Compares the machine with its earlier state.

    New blocks of shared memory and new folders count as leftovers, except blocks that another running process
    maps or has mapped, and the blocks and folders of other runs' servers.

    Args:
        ours: returns the process ids of this run's processes.
        folder: the folder for temporary files, in which servers make their own folders.
    """

    def __init__(self, ours: Pids, folder: Path | None = None) -> None:
        self._ours = ours
        self._folder = folder or Path(tempfile.gettempdir())
        self._folders = self._server_folders()
        self._blocks = blocks.names()
        self._others: set[str] = set()

    def look(self) -> None:
        """Remembers the new blocks of other processes; call it often, before these processes end."""
        new = {name for name in blocks.names() - self._blocks - self._others if not blocks.server_of(name)}
        if new:
            ours = self._ours()
            all_pids = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()}
            self._others |= blocks.mapped(all_pids - ours - self._ours() - {os.getpid()}) & new

    def left(self, excused: set[int], ports: set[int]) -> list[str]:
        """Lists what is on the machine now but was not there before.

        Args:
            excused: processes that may still be running.
            ports: the ports of this run's servers.
        """
        # list the leftovers before their owners, so that a new server's files are not taken for leftovers
        new_blocks = blocks.names() - self._blocks
        new_folders = self._server_folders() - self._folders
        self.look()
        ours, alive = self._ours(), ids_alive()
        others = {f"vh-{server_id}" for server_id in alive}
        new_blocks -= self._others
        return [
            *(describe(pid) for pid in sorted(ours - excused)),
            *(f"port {port}" for port in sorted(ports) if is_held(port, ours)),
            *(f"/dev/shm/{name}" for name in sorted(new_blocks) if blocks.server_of(name) not in alive),
            *(str(path) for path in sorted(new_folders) if path.name not in others),
        ]

    def _server_folders(self) -> set[Path]:
        return {path for path in self._folder.glob("vh-*") if FOLDER_NAME.fullmatch(path.name)}


def is_held(port: int, ours: set[int]) -> bool:
    """Whether a port is still in use, and not by another run's process that took it in the meantime."""
    return not is_free(port) and not listeners(port) - ours - {None}


def describe(pid: int) -> str:
    """Describes a process: its id, command, working folder, status and parent."""
    try:
        process = psutil.Process(pid)
        command = " ".join(process.cmdline()).strip()[-60:]
        return f"pid {pid} ({command} in {process.cwd()}, {process.status()}, of {process.ppid()})"
    except psutil.Error:
        return f"pid {pid}"


def pids_below(folder: Path) -> set[int]:
    """The running processes whose working folder or TMPDIR is in a folder."""
    pids = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            places = (process.cwd(), process.environ().get("TMPDIR", ""))
            if any(Path(place).is_relative_to(folder) for place in places):
                pids.add(process.pid)
    return pids
