"""What a finished command may not leave on a node."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from vllm_harness._server import blocks
from vllm_harness._server.process_tree import ids_alive


def servers() -> list[str]:
    """The commands of vLLM servers and supervisors that run on the nodes."""
    found = []
    for process in psutil.process_iter(["name", "cmdline", "environ"]):
        environ = process.info["environ"] or {}
        ours = environ.get("RAY_NODE_ID") or environ.get("RAY_JOB_ID")
        command = " ".join(process.info["cmdline"] or ())
        if ours and "vllm" in command and "ray::" not in command and "default_worker" not in command:
            found.append(command[:100])
    return found


def wait_for(condition: Callable[[], object], limit_s: float = 240.0) -> None:
    """Waits until a condition holds."""
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, "timed out"
        time.sleep(0.5)


def orphaned_blocks() -> set[str]:
    """The shared memory blocks of servers that have ended."""
    names, alive = blocks.names(), ids_alive()
    return {name for name in names if (server := blocks.server_of(name)) and server not in alive}
