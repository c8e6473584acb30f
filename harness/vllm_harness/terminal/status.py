"""Saying what a slow step is doing: a status line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Progress = Callable[[str], None]
"""Takes one short line about the step now running."""


def quiet(line: str) -> None:
    """The progress of callers who want none."""


@contextmanager
def shown() -> Iterator[Progress]:
    """Progress for people, on stderr: a spinner with the latest line on a terminal, plain lines elsewhere."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    with console.status("") as status:
        yield status.update
