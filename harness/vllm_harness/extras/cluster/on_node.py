"""Runs shards and preparations on a node of a cluster, and streams results and progress to the driver."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from time import monotonic
from typing import Any

from vllm_harness._errors import HarnessError
from vllm_harness._machine.shard import Preparation, Shard

WAKE_S = 0.5
_OF_THE_NODE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO}


@dataclass(frozen=True)
class Started:
    """A shard has started, in this process of the node."""

    pid: int


@dataclass(frozen=True)
class Finished:
    """A cell has finished.

    Attributes:
        cell: the name of the cell.
        result: the result of the cell.
        seconds: the time since the previous cell finished.
    """

    cell: str
    result: Any
    seconds: float


@dataclass(frozen=True)
class Failed:
    """A shard or a preparation has failed; no further item follows.

    Attributes:
        error: the error.
        of_node: whether the cause is the node, such as a full disk, so that another node may succeed.
    """

    error: HarnessError
    of_node: bool


@dataclass(frozen=True)
class Line:
    """A line of progress."""

    text: str


def run_shard(shard: Shard[Any], left: tuple[str, ...]) -> Iterator[Started | Finished | Failed]:
    """Runs the remaining cells of a shard, in the main thread, where a cancelled task is interrupted."""
    yield Started(os.getpid())
    started = monotonic()
    with _interruptible():
        try:
            for cell, result in shard.work(left):
                now = monotonic()
                yield Finished(cell, result, now - started)
                started = now
        except (HarnessError, OSError) as error:
            yield _failed(error)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Makes interrupts take effect at once, even while the main thread waits in the kernel.

    Ray interrupts a task with `_thread.interrupt_main`, which does not end a system call. A signal with an
    empty handler, sent repeatedly, makes Python check for interrupts.
    """
    ended, main = threading.Event(), threading.get_ident()
    before = signal.signal(signal.SIGURG, lambda *_: None)

    def wake() -> None:
        while not ended.wait(WAKE_S):
            signal.pthread_kill(main, signal.SIGURG)

    waking = threading.Thread(target=wake, daemon=True)
    waking.start()
    try:
        yield
    finally:
        ended.set()
        waking.join()
        signal.signal(signal.SIGURG, before)


def prepare(preparation: Preparation) -> Iterator[Line | Failed]:
    """Makes a preparation on this node, and yields its lines of progress without delay."""
    lines: SimpleQueue[Line | Failed | None] = SimpleQueue()

    def make() -> None:
        try:
            preparation.make(lambda text: lines.put(Line(text)))
        except (HarnessError, OSError) as error:
            lines.put(_failed(error))
        finally:
            lines.put(None)

    threading.Thread(target=make, daemon=True).start()
    while item := lines.get():
        yield item


def _failed(error: HarnessError | OSError) -> Failed:
    of_node = any(map(_is_of_node, _causes(error)))
    if isinstance(error, OSError):
        if not of_node:
            raise error
        error = HarnessError(f"{type(error).__name__}: {error}")
    return Failed(_portable(error), of_node)


def _is_of_node(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _OF_THE_NODE
    return isinstance(error, HarnessError) and error.of_machine


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _portable(error: HarnessError) -> HarnessError:
    """Returns the error itself if it can be pickled, otherwise a HarnessError with the same message."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        plain = HarnessError(error.message, hint=error.hint)
        plain.exit_code, plain.of_machine = error.exit_code, error.of_machine
        return plain
    return error
