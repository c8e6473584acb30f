"""The progress of a slow step: a status line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Progress = Callable[[str], None]
"""Takes a short line about the step that is running now."""


def quiet(line: str) -> None:
    """Progress that is not shown."""


@contextmanager
def shown() -> Iterator[Progress]:
    """Progress for people, on stderr: a spinner with the latest line on a terminal, plain lines elsewhere."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    with console.status("") as status:
        yield status.update
