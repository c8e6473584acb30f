"""Making things in the cache: one maker at a time, and whole or not there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from vllm_harness.terminal.status import Progress


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


@contextmanager
def half_made(target: Path) -> Iterator[Path]:
    """A folder beside `target` to make it in, for whoever holds its lock; the last step is renaming.

    No two makers get the same folder: children of one that was killed may still be writing to theirs.
    """
    for left in target.parent.glob(f".{target.name}.*.half"):
        shutil.rmtree(left, ignore_errors=True)
    half = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".half", dir=target.parent))
    try:
        yield half
    finally:
        shutil.rmtree(half, ignore_errors=True)
