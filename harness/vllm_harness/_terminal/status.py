"""Shows the progress of a slow step: a status line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Progress = Callable[[str], None]
"""A function that receives a short line about the current step."""


def quiet(line: str) -> None:
    """Ignores a line of progress."""


@contextmanager
def shown() -> Iterator[Progress]:
    """Shows progress on standard error: a spinner with the latest line on a terminal, or plain lines."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    with console.status("") as status:
        yield status.update
