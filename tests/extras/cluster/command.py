"""Runs `vllm-harness` in a separate process; by default it sends no wheel to the local nodes."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = (sys.executable, "-m", "vllm_harness.cli.main")


def start(*arguments: str) -> subprocess.Popen[str]:
    """Starts it in a new session, with all output in one stream."""
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        env=_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def completed(*arguments: str, ships: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs it to its end; `ships` makes it send a wheel."""
    return subprocess.run([*PROGRAM, *arguments], env=_environ(ships), capture_output=True, text=True)


def _environ(ships: bool = False) -> dict[str, str]:
    return {**os.environ, "VLLM_HARNESS_RAY_SHIP": str(int(ships))}
