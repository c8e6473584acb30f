"""Runs git in a working tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

from vllm_harness._errors import UsageError


def git(tree: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Runs git in a working tree; if git is not installed, returns a failed process as well."""
    command = ["git", "-C", str(tree), *arguments]  # may outlive this process: a killed git leaves locks
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, b"", str(error).encode())


def git_output(tree: Path, *arguments: str, required: bool = False) -> str:
    """Runs git and returns its output without surrounding whitespace; an empty string if git fails.

    Raises:
        UsageError: git fails and `required` is set.
    """
    process = git(tree, *arguments)
    if process.returncode == 0:
        return process.stdout.decode(errors="replace").strip()
    if required:
        raise UsageError(
            f"git {' '.join(arguments[:2])} in {tree}: {process.stderr.decode(errors='replace').strip()}",
            hint="name a checkout of vLLM with its history, and revisions that exist in it",
        )
    return ""
