"""Runs `vllm-harness` in a separate process, by default without sending its wheel to the local nodes."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = (sys.executable, "-m", "vllm_harness.cli.start")


def start(*arguments: str) -> subprocess.Popen[str]:
    """Starts `vllm-harness` in a new session; its standard output and error go to one stream."""
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        env=_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def completed(*arguments: str, ships: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs `vllm-harness` to its end; with `ships`, it sends its wheel to the nodes."""
    return subprocess.run([*PROGRAM, *arguments], env=_environ(ships), capture_output=True, text=True)


def _environ(ships: bool = False) -> dict[str, str]:
    return {**os.environ, "VLLM_HARNESS_RAY_SHIP": str(int(ships))}
