"""Tasks side by side that each start and end servers of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from vllm_harness.errors import HarnessError
from vllm_harness.server.leases.claims import own_task
from vllm_harness.server.leases.ending import Ending, ends_with


def side_by_side(tasks: Sequence[Callable[[], None]], parallel: int) -> list[HarnessError]:
    """Runs tasks, so many at a time; returns the errors of those that failed.

    What interrupts it, or is no error of the harness, ends it: tasks that have not begun are left out, and
    what the others wait for is ended (see `ending`).
    """
    ending = Ending()
    begun: list[threading.Event] = []  # of each task that has: set at its end

    def run(number: int) -> HarnessError | None:
        ended = threading.Event()
        begun.append(ended)
        try:
            if ending.begun:
                return None
            with own_task(f"{id(tasks)} {number}"), ends_with(ending):
                tasks[number]()
        except HarnessError as error:
            return error
        except BaseException:
            ending.begin()
            raise
        finally:
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
