"""One maker at a time for whatever is made in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from harness.environments.progress import Progress


@contextmanager
def one_maker(target: Path, progress: Progress) -> Iterator[None]:
    """Holds the lock file of `target` (a sibling of it); says so while another process has it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress(f"waiting for another process that is making {target.name}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
