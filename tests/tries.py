"""Answers that are asked for again where a busy server joined what it sends piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def asked_until(settled: Callable[[T], bool], ask: Callable[[], T], most: int = 3) -> T:
    """The first answer that is settled, of so many at most; else the last."""
    for _ in range(most - 1):
        if settled(answer := ask()):
            return answer
    return ask()
