"""What is left of servers on the whole machine: processes, ports, shared memory, folders."""

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
    """The machine as it was before, and what there is more of it now.

    New blocks and folders count, except those of other living processes: a block that a process which is not
    ours maps, or mapped when it was seen; a block and a folder of another run's living server.

    Args:
        ours: tells the processes that are ours, the dead ones left out.
    """

    def __init__(self, ours: Pids) -> None:
        self._ours = ours
        self._folder = Path(tempfile.gettempdir())
        self._folders = self._server_folders()
        self._blocks = blocks.names()
        self._others: set[str] = set()

    def look(self) -> None:
        """Notes the new blocks of other processes; to be called often, while these live."""
        new = {name for name in blocks.names() - self._blocks - self._others if not blocks.server_of(name)}
        if new:
            ours = self._ours()
            everybody = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()}
            self._others |= blocks.mapped(everybody - ours - self._ours() - {os.getpid()}) & new

    def left(self, excused: set[int], ports: set[int]) -> list[str]:
        """What there is that was not there before.

        Args:
            excused: processes that are meant to live.
            ports: those that our servers were given.
        """
        # what there is comes before who has it: what comes between is looked at the next time
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
    """Whether a port is in use, and not by another living process, which may get it as soon as it is free."""
    return not is_free(port) and not listeners(port) - ours - {None}


def describe(pid: int) -> str:
    """Words for a process."""
    try:
        process = psutil.Process(pid)
        command = " ".join(process.cmdline()).strip()[-60:]
        return f"pid {pid} ({command} in {process.cwd()}, {process.status()}, of {process.ppid()})"
    except psutil.Error:
        return f"pid {pid}"
