"""git, asked about a working tree."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(tree: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """What git answers; a failure, too, where there is no git."""
    command = ["git", "-C", str(tree), *arguments]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, b"", str(error).encode())
