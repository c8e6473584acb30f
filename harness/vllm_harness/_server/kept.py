"""Kept servers: a run leaves them running, and a later run that needs exactly the same server finds them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from vllm_harness._exchange.endpoint import Endpoint, EndpointError
from vllm_harness._files.locking import locked
from vllm_harness._server.fork_server import FORKING, READ_EARLY
from vllm_harness._server.launch import IN_SERVER, LOCAL, Launch
from vllm_harness._server.leases.ports import listeners
from vllm_harness._server.process_tree import tree_pids
from vllm_harness._server.records import ServerRecord, records_folder, running

END_S = 30.0


def identity(launch: Launch) -> str:
    """A hash, equal for launches that give the same server: model, flags, variables, vLLM and our plugins."""
    parts = [
        launch.model,
        launch.argv(0),
        sorted((name, value) for name, value in launch.environ().items() if _counts(name, launch)),
        launch.environment.fingerprint(),
        [path.read_text() for folder in (FORKING, IN_SERVER) for path in sorted(folder.glob("*.py"))],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _counts(name: str, launch: Launch) -> bool:
    """Whether a variable changes the server: the caller's own, and those that vLLM and its libraries read."""
    upper = name.upper()
    return name in launch.env or upper.startswith(READ_EARLY) or upper.endswith(("_PROXY", "_KEY", "_TOKEN"))


@contextmanager
def locked_start(wanted: str) -> Iterator[None]:
    """Holds the lock to find or start a server of an identity, so that the next holder finds it."""
    with locked(records_folder() / f"{wanted}.lock", "another run that starts the same server, to share it"):
        yield


def find(wanted: str, name: str, api_key: str) -> ServerRecord | None:
    """A kept server of an identity that answers now; a server that does not answer is ended."""
    for record in running():
        if record.kept and record.identity == wanted:
            if _serves(record, name, api_key):
                return record
            end(record)
    return None


def end(record: ServerRecord) -> list[int]:
    """Ends a running server by its record; returns process ids that are left."""
    with suppress(psutil.NoSuchProcess, ProcessLookupError):
        supervisor = psutil.Process(record.supervisor)
        os.kill(record.supervisor, signal.SIGTERM)
        deadline = time.monotonic() + END_S
        while supervisor.is_running() and supervisor.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    return record.clear()


def _serves(record: ServerRecord, name: str, api_key: str) -> bool:
    if listeners(record.port) - tree_pids(record.supervisor):  # another user's server would receive the key
        return False
    with suppress(EndpointError):
        return name in Endpoint(f"http://{LOCAL}:{record.port}", api_key).models()
    return False


class Adopted:
    """A kept server that another run started, with the interface of `Supervised`.

    Args:
        record: its record.
    """

    failure = None
    exit_code = None

    def __init__(self, record: ServerRecord) -> None:
        self._record = record
        self.supervisor_pid = record.supervisor

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return not self._record.supervisor_lives()

    def pid(self) -> int:
        """Process id of its API server."""
        return self._record.pid

    def end(self) -> list[int]:
        """Ends it; returns process ids that survived."""
        return end(self._record)

    def keep(self) -> None:
        """Does nothing: it is kept already."""
