"""What a command says where it is interrupted: where what it found is kept, and what goes on with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_harness._terminal.tables import plain_console


@contextmanager
def kept_at(path: Path, further: str) -> Iterator[None]:
    """Says so, and leaves the interrupt to end the command with the exit code 130.

    Args:
        path: where what was found is kept.
        further: how a command goes on with it.
    """
    try:
        yield
    except KeyboardInterrupt:
        plain_console(stderr=True).print(f"interrupted; kept: {path}; {further}")
        raise
