"""Makes processes end with their parent."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

# The kernel only signals deaths after the request, so the shell checks for an earlier one.
_ONLY_WITH_PARENT = 'test "$PPID" = "$0" || exit 137; exec "$@"'


def killed_with_parent() -> list[str]:
    """A prefix for a command that makes the kernel kill it when this process ends, even by SIGKILL.

    The kernel also kills it when the thread that started it ends. Without `setpriv` the prefix is empty.
    """
    setpriv = shutil.which("setpriv")
    if not setpriv:
        return []
    return [setpriv, "--pdeathsig", "KILL", "sh", "-c", _ONLY_WITH_PARENT, str(os.getpid())]


def run_captured(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command that ends with this process, and captures its output.

    The options are those of `subprocess.run`. A missing program gives exit code 127 if there is `setpriv`.
    """
    prefixed = [*killed_with_parent(), *map(str, command)]
    return subprocess.run(prefixed, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
