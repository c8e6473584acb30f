"""Runs tasks in parallel that start and end servers, and can be interrupted while they wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from vllm_harness._errors import HarnessError


@dataclass
class _Interrupt:
    """Whether the tasks are interrupted, and the functions that end their current waits."""

    is_set: bool = False
    stops: list[Callable[[], object]] = field(default_factory=list)

    def set(self) -> None:
        """Ends the current waits of the tasks; `interrupted_by` ends their later waits."""
        self.is_set = True
        for stop in [*self.stops]:
            stop()


_of_task: ContextVar[_Interrupt | None] = ContextVar("interrupt", default=None)


def task_name() -> str:
    """Identifies the task that this thread runs; empty if it runs none."""
    return str(threading.get_ident()) if _of_task.get() else ""


def run_tasks(tasks: Sequence[Callable[[], None]], parallel: int) -> list[HarnessError]:
    """Runs tasks, at most `parallel` of them at a time; returns the errors of failed tasks.

    An interrupt, or any exception other than a HarnessError, skips the remaining tasks and ends the waits
    of the running tasks.
    """
    interrupt = _Interrupt()
    begun: list[threading.Event] = []  # one for each task that has begun, set when it ends

    def run(number: int) -> HarnessError | None:
        begun.append(ended := threading.Event())
        before = _of_task.set(interrupt)
        try:
            if not interrupt.is_set:
                tasks[number]()
        except HarnessError as error:
            return error
        except BaseException:
            interrupt.set()
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
            interrupt.set()
            for ended in [*begun]:  # the pool forgets a thread that it was just starting
                ended.wait()
            raise
    return [error for error in errors if error is not None]


@contextmanager
def pool_of(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yields a pool of threads that an interrupt does not wait for."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@contextmanager
def interrupted_by(stop: Callable[[], object]) -> Iterator[None]:
    """A context for a wait; `stop` is called to end the wait if the tasks are interrupted.

    Raises:
        KeyboardInterrupt: the tasks were interrupted, so the outcome of the wait means nothing.
    """
    interrupt = _of_task.get() or _Interrupt()
    interrupt.stops.append(stop)
    try:
        if interrupt.is_set:
            stop()
        yield
    finally:
        interrupt.stops.remove(stop)
        raise_if_interrupted()


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt if the task that this thread runs is interrupted."""
    interrupt = _of_task.get()
    if interrupt is not None and interrupt.is_set:
        raise KeyboardInterrupt
