"""Tasks side by side that each start and end servers of their own, and say what ends their waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from vllm_harness._errors import HarnessError


@dataclass
class _Ending:
    """Whether tasks are to end, and what ends that for which each of them waits."""

    begun: bool = False
    ways: list[Callable[[], object]] = field(default_factory=list)

    def begin(self) -> None:
        """Ends what the tasks wait for now; `interrupted_by` ends whatever they would wait for later."""
        self.begun = True
        for way in [*self.ways]:
            way()


_of_task: ContextVar[_Ending | None] = ContextVar("ending", default=None)


def task_name() -> str:
    """Identifies the task that this thread runs; empty where it runs none."""
    return str(threading.get_ident()) if _of_task.get() else ""


def run_tasks(tasks: Sequence[Callable[[], None]], parallel: int) -> list[HarnessError]:
    """Runs tasks, so many at a time; returns the errors of those that failed.

    What interrupts it, or is no error of the harness, ends it: tasks that have not begun are left out, and
    what the others wait for is ended.
    """
    ending = _Ending()
    begun: list[threading.Event] = []  # of each task that has: set at its end

    def run(number: int) -> HarnessError | None:
        begun.append(ended := threading.Event())
        before = _of_task.set(ending)
        try:
            if not ending.begun:
                tasks[number]()
        except HarnessError as error:
            return error
        except BaseException:
            ending.begin()
            raise
        finally:
            _of_task.reset(before)
            ended.set()
        return None

    with ThreadPoolExecutor(parallel) as pool:
        try:
            futures = [pool.submit(run, number) for number in range(len(tasks))]
            errors = [future.result() for future in as_completed(futures)]
        except BaseException:
            ending.begin()
            for ended in [*begun]:  # a pool knows no thread that it was starting when interrupted
                ended.wait()
            raise
    return [error for error in errors if error is not None]


@contextmanager
def interrupted_by(way: Callable[[], object]) -> Iterator[None]:
    """Waits for what `way` ends, where the tasks that this is one of are to end.

    Raises:
        KeyboardInterrupt: they were; what was waited for says nothing.
    """
    ending = _of_task.get() or _Ending()
    ending.ways.append(way)
    try:
        if ending.begun:
            way()
        yield
    finally:
        ending.ways.remove(way)
        raise_if_interrupted()


def raise_if_interrupted() -> None:
    """Goes on where this is no task that is to end.

    Raises:
        KeyboardInterrupt: it is one.
    """
    ending = _of_task.get()
    if ending is not None and ending.begun:
        raise KeyboardInterrupt
