"""Finds processes and shared memory that a command must not leave on a node when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from vllm_harness._server import blocks
from vllm_harness._server.process_tree import ids_alive


def servers() -> list[str]:
    """The command lines of vLLM servers and their supervisors on the nodes of the cluster."""
    commands = []
    for process in psutil.process_iter(["name", "cmdline", "environ"]):
        environ = process.info["environ"] or {}
        ours = environ.get("RAY_NODE_ID") or environ.get("RAY_JOB_ID")
        command = " ".join(process.info["cmdline"] or ())
        if ours and "vllm" in command and "ray::" not in command and "default_worker" not in command:
            commands.append(command[:100])
    return commands


def wait_for(condition: Callable[[], object], limit_s: float = 240.0) -> None:
    """Waits until a condition holds; fails if the time limit is exceeded."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {limit_s:g} s"
        time.sleep(0.1)


def orphaned_blocks() -> set[str]:
    """The shared memory blocks whose server has ended."""
    names, alive = blocks.names(), ids_alive()
    return {name for name in names if (server := blocks.server_of(name)) and server not in alive}
