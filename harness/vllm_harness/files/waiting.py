"""Lock files, waited for aloud."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from vllm_harness.terminal import notices

SILENT_S = 1.0
TELL_EVERY_S = 10.0


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Holds a lock file.

    Args:
        what: what is waited for while another process holds it; said after a second and every 10 s then.
    """
    lock = FileLock(path, thread_local=False)
    start = time.monotonic()
    wait_s = SILENT_S
    while True:
        try:
            lock.acquire(timeout=wait_s)
            break
        except Timeout:
            notices.say(f"waiting for {what} ({time.monotonic() - start:.0f} s)")
            wait_s = TELL_EVERY_S
    try:
        yield
    finally:
        lock.release()
