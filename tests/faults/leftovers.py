"""What servers leave on the whole machine: processes, ports, shared memory, folders."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil

from vllm_harness._server import blocks
from vllm_harness._server.leases.ports import is_free, listeners
from vllm_harness._server.process_tree import ids_alive

FOLDER_NAME = re.compile("vh-[0-9a-f]{12}")
Pids = Callable[[], set[int]]


class Machine:
    """Compares the machine with its state before a test.

    New blocks and folders count, except those of other living processes: a block that a foreign process maps
    or mapped when it was seen, and a block or folder of another run's living server.

    Args:
        ours: gives the ids of our living processes.
    """

    def __init__(self, ours: Pids) -> None:
        self._ours = ours
        self._folder = Path(tempfile.gettempdir())
        self._folders = self._server_folders()
        self._blocks = blocks.names()
        self._others: set[str] = set()

    def look(self) -> None:
        """Notes the new blocks of other processes; called often, while they live."""
        new = {name for name in blocks.names() - self._blocks - self._others if not blocks.server_of(name)}
        if new:
            ours = self._ours()
            everybody = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()}
            self._others |= blocks.mapped(everybody - ours - self._ours() - {os.getpid()}) & new

    def left(self, excused: set[int], ports: set[int]) -> list[str]:
        """What is left that was not there before.

        Args:
            excused: processes that may still live.
            ports: the ports that our servers got.
        """
        # list what is left before its owners: anything newer is seen at the next look
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
    """Whether a port is in use by one of ours; another living process may get it once it is free."""
    return not is_free(port) and not listeners(port) - ours - {None}


def describe(pid: int) -> str:
    """The description of a process."""
    try:
        process = psutil.Process(pid)
        command = " ".join(process.cmdline()).strip()[-60:]
        return f"pid {pid} ({command} in {process.cwd()}, {process.status()}, of {process.ppid()})"
    except psutil.Error:
        return f"pid {pid}"
