"""Tasks side by side: their errors, and what ends them."""

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


def test_the_errors_of_the_harness_are_returned_and_the_others_run() -> None:
    done: list[int] = []

    def fail() -> None:
        raise HarnessError("no memory")

    errors = run_tasks([fail, lambda: done.append(1), fail, lambda: done.append(2)], 2)
    assert [error.message for error in errors] == ["no memory", "no memory"]
    assert sorted(done) == [1, 2]


def test_an_interrupt_leaves_out_what_has_not_begun() -> None:
    begun: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tasks([interrupt, *[lambda: begun.append(1)] * 1000], 1)
    assert not begun


def test_an_interrupt_ends_what_the_others_wait_for() -> None:
    """A task that was ended says nothing, and is none that failed."""
    told: list[str] = []
    both = threading.Barrier(2, action=lambda: signal.pthread_kill(MAIN, signal.SIGINT))

    def wait() -> None:
        with subprocess.Popen(["sleep", "600"]) as process:
            try:
                with interrupted_by(process.kill):
                    both.wait()
                    process.wait()
                told.append("it went on")
            except KeyboardInterrupt:
                told.append("interrupted")

    with pytest.raises(KeyboardInterrupt):
        run_tasks([wait, wait, wait], 2)
    assert told == ["interrupted"] * 2


def test_an_interrupt_while_tasks_are_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first waits already, and is ended as well."""
    submit, waits = ThreadPoolExecutor.submit, threading.Event()

    def wait() -> None:
        with subprocess.Popen(["sleep", "600"]) as process, interrupted_by(process.kill):
            waits.set()
            process.wait()

    def hand_out(pool: ThreadPoolExecutor, run: Callable[[int], Any], number: int) -> Any:
        if number:
            waits.wait()
            raise KeyboardInterrupt
        return submit(pool, run, number)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", hand_out)
    with pytest.raises(KeyboardInterrupt):
        run_tasks([wait, wait], 2)


def test_an_interrupt_while_a_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool does not know the thread yet, which is waited for all the same."""
    waits, told = threading.Event(), []

    def wait() -> None:
        with (
            subprocess.Popen(["sleep", "600"]) as process,
            suppress(KeyboardInterrupt),
            interrupted_by(process.kill),
        ):
            waits.set()
            process.wait()
        time.sleep(0.1)
        told.append("ended")

    def hand_out(_: ThreadPoolExecutor, run: Callable[[int], Any], number: int) -> Any:
        threading.Thread(target=run, args=(number,)).start()
        waits.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", hand_out)
    with pytest.raises(KeyboardInterrupt):
        run_tasks([wait], 1)
    assert told == ["ended"]


def test_what_is_waited_for_after_the_interrupt_ends_at_once() -> None:
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


def test_outside_of_tasks_nothing_ends() -> None:
    raise_if_interrupted()
    with interrupted_by(lambda: pytest.fail("it is ended")):
        pass
