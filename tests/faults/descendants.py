"""Finds the processes below a process, and their roles: fork server, supervisor, API server, engine."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import psutil

Tree = tuple[int | None, int | None, int | None, int | None]


class Descendants:
    """The processes below a process that is a subreaper, so that none of them leaves its tree.

    Args:
        above: the process id of the subreaper.
        state: the state folder of the commands below it.
    """

    def __init__(self, above: int, state: Path) -> None:
        self._above = above
        self.state = state

    def pids(self) -> set[int]:
        """The process ids of all running descendants, without zombies."""
        pids = set()
        for process in psutil.Process(self._above).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                pids |= {process.pid} if process.status() != psutil.STATUS_ZOMBIE else set()
        return pids

    def fork_servers(self) -> set[int]:
        """The process ids of the fork servers, even if they do not listen yet."""
        noted = set()
        for note in self.state.glob("fork/*.json"):
            with suppress(OSError, ValueError):
                noted.add(int(json.loads(note.read_text())["pid"]))
        return noted & self.pids()

    def fork_server(self) -> int | None:
        """The process id of the fork server; None if it is not running."""
        return next(iter(self.fork_servers()), None)

    def model_template(self) -> int | None:
        """The process id of the template that has (or is loading) the model's tokenizer; None without one."""
        return next(iter(self.templates() - self.fork_servers()), None)

    def templates(self) -> set[int]:
        """The ids of the processes that may outlive an owner: the fork servers and their children."""
        found = self.fork_servers()
        for base in tuple(found):
            with suppress(psutil.NoSuchProcess):
                found |= {child.pid for child in psutil.Process(base).children()}
        return found & self.pids()

    def tree(self, tmp: Path) -> Tree:
        """The process ids of supervisor, API server, engine and worker; None for one that does not exist.

        Args:
            tmp: the temporary folder of the server's owner, in which the server's processes work.
        """
        inside: dict[int, int] = {}
        for pid in sorted(self.pids()):
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.cwd().startswith(f"{tmp}/vh-") and "resource_tracker" not in str(
                    process.cmdline()
                ):
                    inside.setdefault(process.ppid(), pid)
        supervisor = next((pid for parent, pid in inside.items() if parent not in inside.values()), None)
        server = inside.get(supervisor or 0)
        engine = inside.get(server or 0)
        return supervisor, server, engine, inside.get(engine or 0)

    def children(self, parent: int, argument: str) -> list[int]:
        """The running children of a process that have an argument on their command line."""
        found = []
        for pid in sorted(self.pids()):
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.ppid() == parent and argument in process.cmdline():
                    found.append(pid)
        return found
