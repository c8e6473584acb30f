"""Temporary folders that a later command removes if their process was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yields a new folder, and removes it at the end; also removes those of killed processes in `parent`.

    `parent` defaults to the system's folder for temporary files. To create a target whole or not at all,
    create it in a temporary folder beside it, and rename it.
    """
    parent = parent or Path(tempfile.gettempdir())
    for old in parent.glob(".vllm-harness-*.tmp"):
        with suppress(OSError), _locked(old, fcntl.LOCK_EX):
            shutil.rmtree(old, ignore_errors=True)
    unlocked = Path(tempfile.mkdtemp(prefix=".vllm-harness-", dir=parent))
    folder = unlocked.with_suffix(".tmp")
    try:
        with _locked(unlocked, fcntl.LOCK_SH):
            yield unlocked.rename(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    """Locks a folder until its process ends, however it ends. Raises OSError if another process uses it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
