"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import shutil

# The kernel tells only of a death that comes after the asking, so one that came before is looked for.
_ONLY_WITH_PARENT = 'test "$PPID" = "$0" || exit 137; exec "$@"'


def killed_with_parent() -> list[str]:
    """What to put before a command so that the kernel kills it when this process ends, be it by kill -9.

    It holds for the thread that starts the command; empty where the system has no `setpriv`.
    """
    setpriv = shutil.which("setpriv")
    if not setpriv:
        return []
    return [setpriv, "--pdeathsig", "KILL", "sh", "-c", _ONLY_WITH_PARENT, str(os.getpid())]
