"""Repeats a request until a busy server no longer merges what it sends piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def asked_until(settled: Callable[[T], bool], ask: Callable[[], T], most: int = 3) -> T:
    """Returns the first settled answer out of at most so many, or else the last."""
    for _ in range(most - 1):
        if settled(answer := ask()):
            return answer
    return ask()
