"""Measures the CPU time of the steps that the tasks of a request take on the server's event loop.

During a step, every other request waits. Runs inside the server and imports nothing from the harness.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine
from typing import Any


class Steps:
    """The steps of a request so far: their number, their total CPU time, and that of the longest step."""

    def __init__(self) -> None:
        self.count = 0
        self.cpu_s = 0.0
        self.longest_s = 0.0

    def timed(self, step: Callable[..., Any], *args: Any) -> Any:
        """Runs a step and measures it."""
        started = time.thread_time()
        try:
            return step(*args)
        finally:
            seconds = time.thread_time() - started
            self.count += 1
            self.cpu_s += seconds
            self.longest_s = max(self.longest_s, seconds)


_STEPS: contextvars.ContextVar[Steps | None] = contextvars.ContextVar("steps", default=None)


async def take(coroutine: Coroutine[Any, Any, None], steps: Steps) -> None:
    """Runs the coroutine of a request and measures the steps of all tasks that it starts."""
    loop = asyncio.get_running_loop()
    if loop.get_task_factory() is not _task:
        loop.set_task_factory(_task)
    before = _STEPS.set(steps)
    try:
        await asyncio.create_task(coroutine)
    finally:
        _STEPS.reset(before)


def shared_task(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Starts a task that serves all requests, so its steps count for none of them."""
    return contextvars.Context().run(asyncio.create_task, coroutine)


def _task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    steps = _STEPS.get()
    return asyncio.Task(_Timed(coroutine, steps) if steps else coroutine, loop=loop, **options)


class _Timed(Coroutine[Any, Any, Any]):
    """A coroutine that measures its steps; libraries such as anyio see the inner coroutine."""

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
