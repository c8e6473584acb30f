"""The message of an interrupted command: where its results are, and how to resume it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_harness._terminal.tables import plain_console


@contextmanager
def kept_at(path: Path, further: str) -> Iterator[None]:
    """Prints a message if the command is interrupted, which then ends with the exit code 130.

    Args:
        path: the file or folder with the results so far.
        further: a message about how to resume the command.
    """
    try:
        yield
    except KeyboardInterrupt:
        plain_console(stderr=True).print(f"interrupted; kept: {path}; {further}")
        raise
