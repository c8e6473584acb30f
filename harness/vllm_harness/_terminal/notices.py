"""Notices: lines that the user must see at once, even if a run is quiet or its output is captured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[str], None]


def show(line: str) -> None:
    """Shows one line on standard error, or with the function that `shown_by` has set."""
    _show(line)


@contextmanager
def shown_by(function: Show) -> Iterator[None]:
    """Shows notices with another function, such as a function that bypasses pytest's capture."""
    global _show
    before, _show = _show, function
    try:
        yield
    finally:
        _show = before


def _on_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_show: Show = _on_standard_error
