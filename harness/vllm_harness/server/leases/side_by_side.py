"""Tasks side by side that each start and end servers of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from vllm_harness.errors import HarnessError
from vllm_harness.server.leases.claims import own_task


def side_by_side(tasks: Sequence[Callable[[], None]], parallel: int) -> list[HarnessError]:
    """Runs tasks, so many at a time; returns the errors of those that failed.

    What interrupts it, or is no error of the harness, ends it: tasks that have not begun are left out.
    """

    def run(number: int) -> None:
        with own_task(f"{id(tasks)} {number}"):
            tasks[number]()

    errors = []
    with ThreadPoolExecutor(parallel) as pool:
        futures = [pool.submit(run, number) for number in range(len(tasks))]
        try:
            for future in as_completed(futures):
                error = future.exception()
                if isinstance(error, HarnessError):
                    errors.append(error)
                else:
                    future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return errors
