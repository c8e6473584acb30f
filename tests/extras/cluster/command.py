"""Runs `vllm-harness` in a separate process; by default it ships nothing, as the nodes are local."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = (sys.executable, "-m", "vllm_harness.cli.main")


def begun(*arguments: str) -> subprocess.Popen[str]:
    """Starts it in a new process group; standard error is part of its output."""
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        env=_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def completed(*arguments: str, ships: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs it to the end."""
    return subprocess.run([*PROGRAM, *arguments], env=_environ(ships), capture_output=True, text=True)


def _environ(ships: bool = False) -> dict[str, str]:
    return {**os.environ, "VLLM_HARNESS_RAY_SHIP": str(int(ships))}
