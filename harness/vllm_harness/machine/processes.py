"""Processes that end with the one that started them."""

from __future__ import annotations

import shutil


def killed_with_parent() -> list[str]:
    """What to put before a command so that the kernel kills it when this process ends, be it by kill -9.

    It holds for the thread that starts the command; empty where the system has no `setpriv`.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
