"""The message of an interrupted command: where its results are, and how to resume it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_harness._terminal.tables import plain_console


@contextmanager
def kept_at(path: Path, further: str) -> Iterator[None]:
    """Prints the message on an interrupt, which then ends the command with the exit code 130.

    Args:
        path: where the results so far are.
        further: how to resume the command.
    """
    try:
        yield
    except KeyboardInterrupt:
        plain_console(stderr=True).print(f"interrupted; kept: {path}; {further}")
        raise
