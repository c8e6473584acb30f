"""The CPU time of a request: of the steps that its own tasks take on the server's event loop.

While a step computes, every other request waits. Runs inside the server, imports nothing of the harness.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine
from typing import Any


class Steps:
    """What the tasks of a request have taken so far: steps, CPU seconds of all, and of the longest."""

    def __init__(self) -> None:
        self.count = 0
        self.cpu_s = 0.0
        self.longest_s = 0.0

    def timed(self, step: Callable[..., Any], *args: Any) -> Any:
        """Takes a step."""
        started = time.thread_time()
        try:
            return step(*args)
        finally:
            taken = time.thread_time() - started
            self.count += 1
            self.cpu_s += taken
            self.longest_s = max(self.longest_s, taken)


_STEPS: contextvars.ContextVar[Steps | None] = contextvars.ContextVar("steps", default=None)


async def take(coroutine: Coroutine[Any, Any, None], steps: Steps) -> None:
    """Runs what a request is, and notes the steps of its tasks, of those that they start as well."""
    loop = asyncio.get_running_loop()
    if loop.get_task_factory() is not _task:
        loop.set_task_factory(_task)
    before = _STEPS.set(steps)
    try:
        await asyncio.create_task(coroutine)
    finally:
        _STEPS.reset(before)


def of_no_request(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task that serves all requests, whichever of them starts it."""
    return contextvars.Context().run(asyncio.create_task, coroutine)


def _task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    steps = _STEPS.get()
    return asyncio.Task(_Timed(coroutine, steps) if steps else coroutine, loop=loop, **options)


class _Timed(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are noted; to those who inspect it, such as anyio, it is the one within."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], steps: Steps) -> None:
        self._coroutine = coroutine
        self._steps = steps

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def send(self, value: Any) -> Any:
        return self._steps.timed(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._steps.timed(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()
