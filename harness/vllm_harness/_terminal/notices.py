"""Lines that a person must see at once, however quiet a run is and whatever captures its output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[str], None]


def show(line: str) -> None:
    """Shows one line: on standard error, or where `shown_by` has it shown."""
    _show(line)


@contextmanager
def shown_by(function: Show) -> Iterator[None]:
    """Has a function of the caller's show the lines, such as one that passes pytest's capture."""
    global _show
    before, _show = _show, function
    try:
        yield
    finally:
        _show = before


def _on_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_show: Show = _on_standard_error
