"""The CPU time that the tasks of a request take on a server's event loop."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Coroutine
from types import ModuleType, SimpleNamespace
from typing import Any

import anyio
import pytest

from vllm_harness._server.launch import IN_SERVER

SHORT_S, LONG_S = 0.25, 4.0


class Clock:
    """The CPU time of a thread, which passes only in `compute`."""

    now_s = 0.0

    @classmethod
    def thread_time(cls) -> float:
        return cls.now_s


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, imported as a server imports it, with the clock of the tests."""
    monkeypatch.syspath_prepend(str(IN_SERVER))
    module = importlib.import_module("vllm_harness_steps")
    monkeypatch.setattr(module, "time", SimpleNamespace(thread_time=Clock.thread_time))
    return module


def compute(seconds: float) -> None:
    Clock.now_s += seconds


async def computing(*steps_s: float) -> None:
    for seconds in steps_s:
        compute(seconds)
        await asyncio.sleep(0)


def measured(steps: ModuleType, *requests: Coroutine[Any, Any, None]) -> list[tuple[float, float]]:
    """The CPU seconds of each of several simultaneous requests, and those of its longest step."""

    async def run() -> list[Any]:
        results = [steps.Steps() for _ in requests]
        await asyncio.gather(*map(steps.take, requests, results))
        return results

    return [(result.cpu_s, result.longest_s) for result in asyncio.run(run())]


def test_each_request_has_its_own_steps(steps: ModuleType) -> None:
    short, long = measured(steps, computing(SHORT_S, SHORT_S), computing(SHORT_S, LONG_S))
    assert short == (2 * SHORT_S, SHORT_S)
    assert long == (SHORT_S + LONG_S, LONG_S)


def test_tasks_that_a_request_starts_count(steps: ModuleType) -> None:
    async def request() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(computing, SHORT_S, SHORT_S)
            tasks.start_soon(computing, LONG_S)

    assert measured(steps, request()) == [(2 * SHORT_S + LONG_S, LONG_S)]


def test_a_shared_task_does_not_count(steps: ModuleType) -> None:
    async def request() -> None:
        await steps.shared_task(computing(LONG_S))

    ((cpu_s, _),) = measured(steps, request())
    assert cpu_s == 0


def test_steps_are_counted(steps: ModuleType) -> None:
    async def run() -> int:
        own = steps.Steps()
        await steps.take(computing(0.0, 0.0, 0.0), own)
        return int(own.count)

    assert asyncio.run(run()) == 4  # a step before each of the three pauses, and one at the end


def test_waiting_and_other_tasks_do_not_count(steps: ModuleType) -> None:
    async def request() -> None:
        await asyncio.sleep(0.01)

    async def run() -> float:
        own = steps.Steps()
        await asyncio.gather(steps.take(request(), own), computing(SHORT_S, SHORT_S))
        return float(own.cpu_s)

    assert asyncio.run(run()) == 0


def test_errors_and_cancellation_propagate(steps: ModuleType) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("of the application")

    async def is_cancelled() -> None:
        compute(SHORT_S)
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep(60)
        assert scope.cancelled_caught

    with pytest.raises(KeyError, match="of the application"):
        measured(steps, fails())
    ((cpu_s, _),) = measured(steps, is_cancelled())
    assert cpu_s == SHORT_S
