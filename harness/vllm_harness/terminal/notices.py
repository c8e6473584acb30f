"""What a person must see at once, however quiet a run is and whatever captures its output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]


def say(text: str) -> None:
    """Shows one line: on standard error, or where `shown_by` says."""
    _shown_by(text)


@contextmanager
def shown_by(show: Say) -> Iterator[None]:
    """Has notices shown in another way, such as past pytest's capture."""
    global _shown_by
    before, _shown_by = _shown_by, show
    try:
        yield
    finally:
        _shown_by = before


def _on_standard_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


_shown_by: Say = _on_standard_error
