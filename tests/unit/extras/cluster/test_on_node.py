"""The items that a node sends back from a shard and from a preparation, tested in this process."""

from __future__ import annotations

import _thread
import errno
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._machine.shard import Preparation, Say, Shard, Work
from vllm_harness._server.errors import KilledByOom, UnknownFlag
from vllm_harness.extras.cluster.on_node import Failed, Finished, Line, Started, prepare, run_shard


def shard(work: Work[str]) -> Shard[str]:
    """Makes a shard of two cells."""
    return Shard("shard", ("a", "b"), work)


def failing(error: BaseException) -> Work[str]:
    """Makes work that finishes one cell and then raises an error."""

    def work(cells: Sequence[str]) -> Iterator[tuple[str, str]]:
        yield cells[0], "found"
        raise error

    return work


class Odd(HarnessError):
    """An error that cannot be unpickled, since its constructor needs an argument that it does not store."""

    def __init__(self, message: str, more: str) -> None:
        super().__init__(message, hint=more)


def test_each_cell_is_sent_when_it_finishes() -> None:
    def work(cells: Sequence[str]) -> Iterator[tuple[str, str]]:
        for cell in cells:
            yield cell, f"result of {cell}"

    started, first, second = run_shard(shard(work), ("a", "b"))
    assert started == Started(os.getpid())
    assert isinstance(first, Finished)
    assert isinstance(second, Finished)
    assert [(item.cell, item.result) for item in (first, second)] == [
        ("a", "result of a"),
        ("b", "result of b"),
    ]


@pytest.mark.parametrize(
    ("error", "of_node"),
    [
        (HarnessError("no"), False),
        (UsageError("no"), False),
        (UnknownFlag("no"), False),
        (KilledByOom("no"), True),
        (OSError(errno.ENOSPC, "full"), True),
    ],
)
def test_a_failure_says_whether_the_node_is_the_cause(error: Exception, of_node: bool) -> None:
    *_, failed = run_shard(shard(failing(error)), ("a", "b"))
    assert isinstance(failed, Failed)
    assert failed.of_node is of_node


def test_a_full_disk_is_detected_as_the_cause_of_another_error() -> None:
    def work(cells: Sequence[str]) -> Iterator[tuple[str, str]]:
        try:
            raise OSError(errno.ENOSPC, "full")
        except OSError as error:
            raise HarnessError("it cannot be written") from error
        yield from ()

    _, failed = run_shard(shard(work), ("a",))
    assert isinstance(failed, Failed)
    assert failed.of_node
    assert failed.error.message == "it cannot be written"


def test_an_error_that_cannot_be_pickled_keeps_its_message() -> None:
    *_, failed = run_shard(shard(failing(Odd("what happened", "what to try"))), ("a", "b"))
    assert isinstance(failed, Failed)
    assert (type(failed.error), str(failed.error)) == (HarnessError, "what happened\n  try: what to try")


def test_errors_of_other_kinds_are_raised() -> None:
    with pytest.raises(FileNotFoundError):
        list(run_shard(shard(failing(FileNotFoundError(errno.ENOENT, "no file"))), ("a", "b")))


def test_an_interrupt_ends_a_system_call() -> None:
    def work(cells: Sequence[str]) -> Iterator[tuple[str, str]]:
        threading.Timer(0.2, _thread.interrupt_main).start()
        time.sleep(3600)  # longer than the time limit of the tests
        yield cells[0], ""

    handler = signal.getsignal(signal.SIGURG)
    with pytest.raises(KeyboardInterrupt):
        list(run_shard(shard(work), ("a",)))
    assert signal.getsignal(signal.SIGURG) == handler


def test_a_preparation_sends_its_lines_and_then_its_failure() -> None:
    def make(say: Say) -> None:
        say("one")
        raise OSError(errno.ENOSPC, "full")

    line, failed = prepare(Preparation("it", make))
    assert line == Line("one")
    assert isinstance(failed, Failed)
    assert failed.of_node
    assert list(prepare(Preparation("it", lambda say: say("two")))) == [Line("two")]
