"""Processes that end with their parent."""

from __future__ import annotations

import os
import shutil

# The kernel only signals a death after the request, so the shell checks whether the parent died before.
_ONLY_WITH_PARENT = 'test "$PPID" = "$0" || exit 137; exec "$@"'


def killed_with_parent() -> list[str]:
    """A prefix for a command that makes the kernel kill it when this process ends, even by kill -9.

    The end of the thread that starts the command counts too. The prefix is empty without `setpriv`.
    """
    setpriv = shutil.which("setpriv")
    if not setpriv:
        return []
    return [setpriv, "--pdeathsig", "KILL", "sh", "-c", _ONLY_WITH_PARENT, str(os.getpid())]
