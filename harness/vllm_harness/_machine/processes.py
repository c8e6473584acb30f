"""Makes processes end with their parent."""

from __future__ import annotations

import os
import shutil

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
