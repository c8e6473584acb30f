"""`vllm-harness` in a process of its own; by default it sends nothing, the nodes being here."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = (sys.executable, "-m", "vllm_harness.cli.main")


def begun(*arguments: str) -> subprocess.Popen[str]:
    """Starts it, in a process group of its own; all that it says comes in one stream."""
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        env=_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def completed(*arguments: str, ships: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    return subprocess.run([*PROGRAM, *arguments], env=_environ(ships), capture_output=True, text=True)


def _environ(ships: bool = False) -> dict[str, str]:
    return {**os.environ, "VLLM_HARNESS_RAY_SHIP": str(int(ships))}
