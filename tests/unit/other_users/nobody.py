"""Helpers for tests with another user: child processes of the user `nobody`, and folders it owns."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from vllm_harness._testing.skips import coded

NOBODY = 65534
WAIT_S = 60.0
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason=coded("no-root", "only root may act as another user: run this test as root")
)


class Nobody:
    """Runs a function in a child process that belongs to another user.

    Args:
        act: the function; it returns the exit code of the process, which is 1 after an exception.
    """

    def __init__(self, act: Callable[[], int | None]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                code = act() or 0
            except BaseException:
                traceback.print_exc()
                code = 1
            os._exit(code)

    def exit_code(self) -> int:
        """Waits until the process ends; returns its exit code."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        raise TimeoutError(f"pid {self.pid} did not end")


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """Makes a temporary folder that every user may read, unlike pytest's temporary folders."""
    with tempfile.TemporaryDirectory(prefix="vh-other-users-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def given_to_nobody(path: Path) -> Path:
    """Makes another user the owner of a path."""
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return path


def wait_for_path(path: Path) -> Path:
    """Waits until a path exists."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            if path.exists():
                return path
        time.sleep(0.01)
    raise TimeoutError(f"{path} did not appear")
