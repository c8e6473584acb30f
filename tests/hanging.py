"""Whether something ends that should end, judged by what the server does meanwhile, not by a clock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

import pytest

LATER = 6
"""How many requests a server answers completely while something that should end may still be open."""
READING = "reading"
T = TypeVar("T")


def in_a_thread(read: Callable[[], T]) -> Future[T]:
    """Calls a function in a thread that nobody waits for, since it may never return."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(read())
        except Exception as error:
            future.set_exception(error)

    Thread(target=run, name=READING, daemon=True).start()
    return future


def ends(read: Callable[[], T], later: Callable[[], object]) -> T:
    """Returns what `read` returns, which must end before `later`, a whole request, is answered LATER times.

    The server generates the later answers after everything that `read` waits for.
    """
    reading = in_a_thread(read)
    for _ in range(LATER):
        later()
    if not reading.done():
        pytest.fail(f"still open after {LATER} later answers")
    return reading.result()
