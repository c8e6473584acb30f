"""The end of tasks side by side before they are through: each says what ends that for which it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Way = Callable[[], object]


class Ending:
    """Whether tasks are to end, and what ends that for which each of them waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ways: list[Way] = []
        self._begun = threading.Event()

    @property
    def begun(self) -> bool:
        """Whether the tasks are to end."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Ends what the tasks wait for now, and whatever they would wait for later."""
        with self._lock:
            self._begun.set()
            ways, self._ways = self._ways, []
        for way in ways:
            way()

    def add(self, way: Way) -> None:
        """Has it called at the end; at once where that has begun."""
        with self._lock:
            if not self.begun:
                self._ways.append(way)
                return
        way()

    def remove(self, way: Way) -> None:
        """Leaves it out from now on."""
        with self._lock:
            if way in self._ways:
                self._ways.remove(way)


_of_task: ContextVar[Ending | None] = ContextVar("ending", default=None)


@contextmanager
def ends_with(ending: Ending) -> Iterator[None]:
    """Has what this thread waits for meanwhile end with these tasks."""
    before = _of_task.set(ending)
    try:
        yield
    finally:
        _of_task.reset(before)


@contextmanager
def ended_by(way: Way) -> Iterator[None]:
    """Waits for what `way` ends, where the tasks that this is one of are to end.

    Raises:
        KeyboardInterrupt: they were; what was waited for says nothing.
    """
    ending = _of_task.get()
    if ending is None:
        yield
        return
    ending.add(way)
    try:
        yield
    finally:
        ending.remove(way)
        go_on()


def go_on() -> None:
    """Goes on where this is no task that is to end.

    Raises:
        KeyboardInterrupt: it is one.
    """
    ending = _of_task.get()
    if ending is not None and ending.begun:
        raise KeyboardInterrupt
