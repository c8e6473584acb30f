"""Repeats a request because a busy server may merge the pieces of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def asked_until(settled: Callable[[T], bool], ask: Callable[[], T], most: int = 3) -> T:
    """Returns the first answer that is `settled`, or the last one after `most` requests."""
    for _ in range(most - 1):
        if settled(answer := ask()):
            return answer
    return ask()
