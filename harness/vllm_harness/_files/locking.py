"""Lock files, so that only one process at a time creates a target, and a target is complete or absent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from vllm_harness._terminal import notices

SILENT_S = 1.0
REPORT_EVERY_S = 10.0


@contextmanager
def locked(path: Path, holder: str, show: Callable[[str], None] = notices.show) -> Iterator[None]:
    """Acquires a lock file, and reports the wait while another process holds it.

    The first report comes after 1 s, later ones every 10 s; `holder` describes the other process, such as
    `another run that starts the same server`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, thread_local=False)
    start = time.monotonic()
    wait_s = SILENT_S
    while True:
        try:
            lock.acquire(timeout=wait_s)
            break
        except Timeout:
            show(f"waiting for {holder} ({time.monotonic() - start:.0f} s)")
            wait_s = REPORT_EVERY_S
    try:
        yield
    finally:
        lock.release()


def locked_for_making(target: Path, show: Callable[[str], None]) -> AbstractContextManager[None]:
    """Acquires a lock file beside a target while the target is created; see `locked`."""
    lock = target.parent / f".{target.name}.lock"
    return locked(lock, f"another process that is making {target.name}", show)
