"""A fork of the pytest process that takes chunks of tests from a queue and sends reports to its parent."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Literal, NoReturn

import psutil
import pytest

from vllm_harness._machine import interrupts
from vllm_harness._server.remote import RemoteServer
from vllm_harness._server.supervisor import die_with_parent
from vllm_harness._testing import progress
from vllm_harness._testing.session import result_of, servers_of, the_run

LATE_IMPORTS = ("mcp.server.sse", "openai.resources.chat.chat", "openai.resources.responses.responses")
"""Modules that tests import late, so that each fork would import them again; some may not be installed."""
_FORK = multiprocessing.get_context("fork")
Kind = Literal["begin", "report", "warning", "end"]


@dataclass(frozen=True)
class ForkMessage:
    """A message from a fork about a test.

    Attributes:
        test: the number of the test in the queues.
        kind: "begin" has no content, "report" the data of a report, "warning" the arguments of the warning's
            hook, and "end" the findings of the checks.
        content: the content, as described for `kind`.
    """

    test: int
    kind: Kind
    content: Any = None


class ChunkQueue:
    """A queue of test chunks that this process shares with its forks.

    Args:
        chunks: the chunks, whose tests are numbered consecutively.
        first: the number of the first test.
        opened: whether chunks can be taken immediately, or only after `open`.
    """

    def __init__(
        self, chunks: Sequence[Sequence[pytest.Item]], first: int = 0, *, opened: bool = True
    ) -> None:
        self.tests = [item for chunk in chunks for item in chunk]
        self.first = first
        self._chunks = chunks
        self._starts = list(accumulate(map(len, chunks), initial=first))
        self._next = _FORK.Value("i", 0)
        self._opened = _FORK.Event()
        if opened:
            self.open()

    def open(self) -> None:
        """Allows processes to take chunks."""
        self._opened.set()

    def take(self) -> Iterator[tuple[int, Sequence[pytest.Item]]]:
        """Waits until the queue is open, then yields taken chunks: (number of the first test, chunk)."""
        self._opened.wait()
        while True:
            with self._next.get_lock():
                index: int = self._next.value
                self._next.value += 1
            if index >= len(self._chunks):
                return
            yield self._starts[index], self._chunks[index]


class Forks:
    """The running forks, and the messages that they send.

    Args:
        session: the pytest session.
        server: the target's server; if it dies, the forks end.
        queues: for each fork, the queues from which it takes chunks, in order.
    """

    def __init__(
        self, session: pytest.Session, server: RemoteServer, queues: Sequence[Iterable[ChunkQueue]]
    ) -> None:
        self._messages: SimpleQueue[ForkMessage | None] = SimpleQueue()
        self._running = len(queues)
        # called here, because the first process that calls it empties --basetemp
        config: Any = session.config
        config._tmp_path_factory.getbasetemp()
        for name in LATE_IMPORTS:
            with suppress(ImportError):
                import_module(name)
        gc.freeze()  # so that no fork searches the collected tests for garbage
        self._pids = [self._fork(session, server, queues_of_fork) for queues_of_fork in queues]

    def arrived(self) -> Iterator[ForkMessage]:
        """The messages that have arrived so far."""
        while not self._messages.empty():
            yield from self._next()

    def remaining(self) -> Iterator[ForkMessage]:
        """All further messages; waits until every fork has ended."""
        while self._running:
            yield from self._next()

    def end(self) -> None:
        """Kills the forks that still run; the processes that they started end with them."""
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _next(self) -> Iterator[ForkMessage]:
        message = self._messages.get()
        if message is None:
            self._running -= 1
        else:
            yield message

    def _fork(self, session: pytest.Session, server: RemoteServer, queues: Iterable[ChunkQueue]) -> int:
        reader, writer = _FORK.Pipe(duplex=False)
        parent = os.getpid()
        with warnings.catch_warnings():
            # the other threads wait for supervisors and forks, and hold no lock that a test needs
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            reader.close()
            die_with_parent(parent)
            _run(session, server, queues, writer)
        writer.close()
        threading.Thread(target=self._listen, args=(reader,), daemon=True).start()
        return pid

    def _listen(self, reader: Connection) -> None:
        with reader, suppress(EOFError, OSError):
            while True:
                self._messages.put(reader.recv())
        self._messages.put(None)


class _Sender:
    """A pytest plugin of a fork that sends reports and warnings to the parent process."""

    def __init__(self, config: pytest.Config, writer: Connection) -> None:
        self._config = config
        self._writer = writer
        self._test = 0

    def begin(self, test: int) -> None:
        self._test = test
        self.send("begin")

    def send(self, kind: Kind, content: Any = None) -> None:
        self._writer.send(ForkMessage(self._test, kind, content))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self.send("report", data)

    def pytest_warning_recorded(
        self, warning_message: Any, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        warning_message.source = None
        arguments = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self.send("warning", arguments)


def _run(
    session: pytest.Session, server: RemoteServer, queues: Iterable[ChunkQueue], writer: Connection
) -> NoReturn:
    """Runs chunks until none is left, and exits: if it returned, it would run the parent's cleanup."""
    try:
        for number in interrupts.SIGNALS:
            signal.signal(number, lambda *_: None)  # the parent ends this process
        sender = _Sender(session.config, writer)
        _send_only(session.config, sender)
        for queue in queues:
            _run_queue(session, server, queue, sender)
    except BaseException:
        traceback.print_exc()
    finally:
        writer.close()
        os._exit(0)


def _run_queue(session: pytest.Session, server: RemoteServer, queue: ChunkQueue, sender: _Sender) -> None:
    further = max(map(servers_of, queue.tests), default=1) - 1
    with the_run(session.config).servers.forked(server, further) as may_start:
        for first, chunk in queue.take() if may_start else ():
            for number, (item, following) in enumerate(zip(chunk, [*chunk[1:], session], strict=True), first):
                if not psutil.pid_exists(server.pid):
                    os._exit(1)
                _run_one(item, following, sender, number)


def _run_one(item: pytest.Item, following: Any, sender: _Sender, number: int) -> None:
    result = result_of(item)
    result.findings.clear()
    sender.begin(number)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    sender.send("end", list(result.findings.values()))


def _send_only(config: pytest.Config, sender: _Sender) -> None:
    """Sends reports to the parent instead of the terminal, and captures output in files of this process."""
    for name in ("terminalreporter", progress.NAME):
        if config.pluginmanager.hasplugin(name):
            config.pluginmanager.unregister(name=name)
    config.pluginmanager.register(sender)
    if capture := config.pluginmanager.getplugin("capturemanager"):
        capture.stop_global_capturing()
        capture.start_global_capturing()
