"""Parallel tasks: their errors and interrupts."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from vllm_harness._errors import HarnessError
from vllm_harness._machine.tasks import interrupted_by, raise_if_interrupted, run_tasks

MAIN = threading.main_thread().ident or 0


def test_errors_of_the_harness_are_returned() -> None:
    done: list[int] = []

    def fail() -> None:
        raise HarnessError("no memory")

    errors = run_tasks([fail, lambda: done.append(1), fail, lambda: done.append(2)], 2)
    assert [error.message for error in errors] == ["no memory", "no memory"]
    assert sorted(done) == [1, 2]


def test_an_interrupt_skips_the_remaining_tasks() -> None:
    begun: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tasks([interrupt, *[lambda: begun.append(1)] * 1000], 1)
    assert not begun


def test_an_interrupt_ends_the_waits_of_other_tasks() -> None:
    outcomes: list[str] = []
    both = threading.Barrier(2, action=lambda: signal.pthread_kill(MAIN, signal.SIGINT))

    def wait() -> None:
        with subprocess.Popen(["sleep", "600"]) as process:
            try:
                with interrupted_by(process.kill):
                    both.wait()
                    process.wait()
                outcomes.append("completed")
            except KeyboardInterrupt:
                outcomes.append("interrupted")

    with pytest.raises(KeyboardInterrupt):
        run_tasks([wait, wait, wait], 2)
    assert outcomes == ["interrupted"] * 2


def test_an_interrupt_while_tasks_are_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task, which is already waiting, ends as well."""
    submit, waits = ThreadPoolExecutor.submit, threading.Event()

    def wait() -> None:
        with subprocess.Popen(["sleep", "600"]) as process, interrupted_by(process.kill):
            waits.set()
            process.wait()

    def submit_one(pool: ThreadPoolExecutor, run: Callable[[int], Any], number: int) -> Any:
        if number:
            waits.wait()
            raise KeyboardInterrupt
        return submit(pool, run, number)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit_one)
    with pytest.raises(KeyboardInterrupt):
        run_tasks([wait, wait], 2)


def test_an_interrupt_while_a_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run_tasks` waits for the thread, although the pool does not know the thread yet."""
    waits, outcomes = threading.Event(), []

    def wait() -> None:
        with (
            subprocess.Popen(["sleep", "600"]) as process,
            suppress(KeyboardInterrupt),
            interrupted_by(process.kill),
        ):
            waits.set()
            process.wait()
        time.sleep(0.1)
        outcomes.append("ended")

    def start_thread(_: ThreadPoolExecutor, run: Callable[[int], Any], number: int) -> Any:
        threading.Thread(target=run, args=(number,)).start()
        waits.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", start_thread)
    with pytest.raises(KeyboardInterrupt):
        run_tasks([wait], 1)
    assert outcomes == ["ended"]


def test_a_wait_after_the_interrupt_ends_at_once() -> None:
    ended: list[str] = []

    def fail() -> None:
        raise KeyboardInterrupt

    def late() -> None:
        with suppress(KeyboardInterrupt):
            while True:
                raise_if_interrupted()
                time.sleep(0.01)
        with pytest.raises(KeyboardInterrupt), interrupted_by(lambda: ended.append("late")):
            pass

    with pytest.raises(KeyboardInterrupt):
        run_tasks([late, fail], 2)
    assert ended == ["late"]


def test_no_interrupt_outside_of_tasks() -> None:
    raise_if_interrupted()
    with interrupted_by(lambda: pytest.fail("interrupted")):
        pass
