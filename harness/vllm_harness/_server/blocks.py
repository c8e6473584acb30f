"""The POSIX shared memory of servers: blocks with a server's id in their name, and native blocks.

Uses the standard library only: supervisor.py loads this file by path, also in the server's interpreter.
Python's own blocks and semaphores get their names from vllm_harness_shm.py, in the server. Native code
(torch, NCCL, vLLM's kernels) chooses its own names; its blocks are found in the memory maps of the processes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

FOLDER = Path("/dev/shm")
OURS = re.compile(r"(?:sem\.)?vh-([0-9a-f]+)-.+")
ORPHAN_S = 60.0


def server_of(name: str) -> str | None:
    """The server id in a block's name; None if it contains none."""
    match = OURS.fullmatch(name)
    return match[1] if match else None


def names() -> set[str]:
    """The names of all shared memory blocks on the machine."""
    try:
        return {path.name for path in FOLDER.iterdir()}
    except OSError:
        return set()


def of_server(server_id: str) -> set[str]:
    """The blocks with a server's id in their name."""
    return {name for name in names() if server_of(name) == server_id}


def mapped(pids: Iterable[int]) -> set[str]:
    """The blocks mapped by processes; ended processes and those of other users are skipped."""
    blocks = set()
    start = f"{FOLDER}/"
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/maps") as maps:  # noqa: PTH123
            paths = (line.split(None, 5)[5].rstrip("\n") for line in maps if start in line)
            blocks |= {path.removeprefix(start) for path in paths if path.startswith(start)}
    return {name for name in blocks if not name.endswith(" (deleted)")}


def in_use() -> set[str]:
    """The blocks that are mapped by any living process."""
    return mapped(int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())


def remove(blocks: Iterable[str]) -> None:
    """Removes blocks; skips those that are already gone or belong to other users."""
    for name in blocks:
        with suppress(OSError):
            (FOLDER / name).unlink()


def remove_of(server_id: str, native: set[str]) -> None:
    """Removes the blocks of an ended server: those with its id, and native ones that no process maps."""
    remove(of_server(server_id))
    if native & names():
        remove(native - in_use())


def orphans(alive: Iterable[str]) -> set[str]:
    """The blocks of dead servers that are older than a minute and that no process maps."""
    excluded = {None, *alive}
    old = {name for name in names() if server_of(name) not in excluded and _age(name) > ORPHAN_S}
    return old - in_use() if old else old


def _age(name: str) -> float:
    try:
        return time.time() - (FOLDER / name).stat().st_ctime
    except OSError:
        return 0.0


class Native:
    """The blocks that native code in a server has created, collected while the server runs.

    Args:
        earlier_blocks: blocks that existed before the server, so are not its own even if it maps them.
    """

    def __init__(self, earlier_blocks: Iterable[str]) -> None:
        self._earlier = set(earlier_blocks)
        self._seen: set[str] = set()
        self.blocks: set[str] = set()

    def look(self, pids: Callable[[], Iterable[int]], *, again: bool = False) -> None:
        """Adds the new blocks that the server's processes map; costs almost nothing if there are none.

        Args:
            pids: returns the process ids of the server.
            again: also check the blocks that an earlier call has already looked at.
        """
        new = {name for name in names() - self._earlier if server_of(name) is None}
        if new - (set() if again else self._seen):
            self.blocks |= mapped(pids()) & new
            self._seen |= new
