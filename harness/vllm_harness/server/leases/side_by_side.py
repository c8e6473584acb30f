"""Tasks side by side that each start and end servers of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from vllm_harness.errors import HarnessError
from vllm_harness.server.leases.claims import own_task


def side_by_side(tasks: Sequence[Callable[[], None]], parallel: int) -> list[HarnessError]:
    """Runs tasks, so many at a time; returns the errors of those that failed.

    What interrupts it, or is no error of the harness, ends it: tasks that have not begun are left out.
    """

    ended = threading.Event()

    def run(number: int) -> HarnessError | None:
        if ended.is_set():
            return None
        try:
            with own_task(f"{id(tasks)} {number}"):
                tasks[number]()
        except HarnessError as error:
            return error
        except BaseException:
            ended.set()
            raise
        return None

    with ThreadPoolExecutor(parallel) as pool:
        futures = [pool.submit(run, number) for number in range(len(tasks))]
        try:
            errors = [future.result() for future in as_completed(futures)]
        except BaseException:
            ended.set()
            raise
    return [error for error in errors if error is not None]
