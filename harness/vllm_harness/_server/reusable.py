"""Reusable servers: left running by a run, for a later run that needs exactly the same server."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

from vllm_harness._exchange.endpoint import EndpointError
from vllm_harness._files.locking import locked
from vllm_harness._server.diagnosis import ServerEnd
from vllm_harness._server.fork_server import FORKING, READ_EARLY
from vllm_harness._server.inherited import inherited
from vllm_harness._server.launch import IN_SERVER, Launch
from vllm_harness._server.leases.ports import listeners
from vllm_harness._server.process_tree import tree_pids
from vllm_harness._server.records import ServerRecord, records_folder, running

END_S = 30.0


def identity(launch: Launch) -> str:
    """A hash that is equal for launches with the same model, flags, variables, limits, vLLM and plugins."""
    parts = [
        launch.model,
        launch.argv(0),
        sorted((name, value) for name, value in launch.environ().items() if _is_read(name, launch)),
        launch.environment.fingerprint(),
        sorted((name, value) for name, value in inherited().items() if name != "cgroup"),  # one per login
        [path.read_text() for folder in (FORKING, IN_SERVER) for path in sorted(folder.glob("*.py"))],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _is_read(name: str, launch: Launch) -> bool:
    """Whether a server may depend on a variable: the launch sets it, or vLLM or its libraries read it."""
    upper = name.upper()
    return name in launch.env or upper.startswith(READ_EARLY) or upper.endswith(("_PROXY", "_KEY", "_TOKEN"))


def locked_start(wanted: str) -> AbstractContextManager[None]:
    """Holds the lock that is needed to find or start a server with an identity."""
    return locked(records_folder() / f"{wanted}.lock", "another run that starts the same server, to share it")


def find_reusable(wanted: str, name: str, api_key: str) -> ServerRecord | None:
    """The record of a reusable server with an identity and model name; ends those that do not serve it."""
    for record in running():
        if record.kept and record.identity == wanted:
            if _serves(record, name, api_key):
                return record
            end_server(record)
    return None


def end_server(record: ServerRecord) -> list[int]:
    """Ends a running server, given its record; returns the ids of processes that survived."""
    if record.supervisor_lives():
        with suppress(ProcessLookupError):
            os.kill(record.supervisor, signal.SIGTERM)
    deadline = time.monotonic() + END_S
    while record.supervisor_lives() and time.monotonic() < deadline:
        time.sleep(0.05)
    return record.clear()


def _serves(record: ServerRecord, name: str, api_key: str) -> bool:
    if listeners(record.port) - tree_pids(record.supervisor):  # another user's server would get the API key
        return False
    with suppress(EndpointError):
        return name in replace(record.endpoint, api_key=api_key).models()
    return False


class ReusedServer:
    """A server that another run started; implements a part of the interface of `Supervised`."""

    def __init__(self, record: ServerRecord) -> None:
        self._record = record
        self.supervisor_pid = record.supervisor

    @property
    def ended(self) -> bool:
        return not self._record.supervisor_lives()

    def pid(self) -> int:
        return self._record.pid

    def why(self) -> ServerEnd:
        """Describes an end that nobody asked for; a supervisor that was killed leaves its record."""
        left = self._record.path().exists()
        return ServerEnd(log_path=Path(self._record.log), exit_code=None, orphaned=left)

    def end(self) -> list[int]:
        return end_server(self._record)
