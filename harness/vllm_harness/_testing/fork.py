"""A fork of the pytest process that takes chunks of tests from a queue and sends their reports."""

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

from vllm_harness._server.remote import RemoteServer
from vllm_harness._server.supervisor import die_with_parent
from vllm_harness._testing import progress
from vllm_harness._testing.session import result_of, servers_of, the_run

LATE_IMPORTS = ("mcp.server.sse", "openai.resources.chat.chat", "openai.resources.responses.responses")
"""What tests import when they use it, and each fork would for itself; some of it may not be installed."""
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class ForkMessage:
    """What a fork sends about a test.

    Attributes:
        test: the test's number among all that the forks share.
        kind: whether the content is nothing, a report's data, a warning's arguments, or the checks' findings.
    """

    test: int
    kind: Literal["begin", "report", "warning", "end"]
    content: Any = None


class ChunkQueue:
    """Chunks of tests that processes take one after the other, this one and its forks.

    Args:
        chunks: of which each test has a number: its place among the tests of all chunks, from `first` on.
        first: the first test's number.
        opened: whether chunks can be taken from the beginning.
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
        """Lets chunks be taken from now on."""
        self._opened.set()

    def taken(self) -> Iterator[tuple[int, Sequence[pytest.Item]]]:
        """Takes chunks until none is left, once it is open; each with the number of its first test."""
        self._opened.wait()
        while True:
            with self._next.get_lock():
                place: int = self._next.value
                self._next.value += 1
            if place >= len(self._chunks):
                return
            yield self._starts[place], self._chunks[place]


class Forks:
    """Forks that run, and the messages that they send.

    Args:
        session: the pytest session.
        server: the target's; a fork stops where it has died.
        queues: for each fork, the queues that it takes chunks from, in turn.
    """

    def __init__(
        self, session: pytest.Session, server: RemoteServer, queues: Sequence[Iterable[ChunkQueue]]
    ) -> None:
        self._messages: SimpleQueue[ForkMessage | None] = SimpleQueue()
        self._running = len(queues)
        # the first process that wants it empties --basetemp, whatever others have there
        config: Any = session.config
        config._tmp_path_factory.getbasetemp()
        for name in LATE_IMPORTS:
            with suppress(ImportError):
                import_module(name)
        gc.freeze()  # what was collected lives on: no process looks for garbage in it
        self._pids = [self._fork(session, server, each) for each in queues]

    def arrived(self) -> Iterator[ForkMessage]:
        """The messages that have come by now."""
        while not self._messages.empty():
            yield from self._next()

    def remaining(self) -> Iterator[ForkMessage]:
        """All further messages, until every fork has ended."""
        while self._running:
            yield from self._next()

    def end(self) -> None:
        """Ends those that still run; what they have started ends with them."""
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
            # other threads wait for supervisors and forks, and hold no lock that a test wants
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
    """A pytest plugin of a fork, in place of the terminal's reporter."""

    def __init__(self, config: pytest.Config, writer: Connection) -> None:
        self._config = config
        self._writer = writer
        self._test = 0

    def begin(self, test: int) -> None:
        self._test = test
        self.send("begin")

    def send(self, kind: Literal["begin", "report", "warning", "end"], content: Any = None) -> None:
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
    """Runs chunks until none is left; never comes back, so that nothing of the parent's is ended here."""
    try:
        sender = _Sender(session.config, writer)
        _send_only(session.config, sender)
        for each in queues:
            _take(session, server, each, sender)
    except BaseException:
        traceback.print_exc()
    finally:
        writer.close()
        os._exit(0)


def _take(session: pytest.Session, server: RemoteServer, queue: ChunkQueue, sender: _Sender) -> None:
    more = max(map(servers_of, queue.tests), default=1) - 1
    with the_run(session.config).servers.forked(server, more) as may_start:
        for first, chunk in queue.taken() if may_start else ():
            followed = [*chunk[1:], session]
            for number, pair in enumerate(zip(chunk, followed, strict=True), first):
                if not psutil.pid_exists(server.pid):
                    os._exit(1)
                _run_one(*pair, sender, number)


def _run_one(item: pytest.Item, following: Any, sender: _Sender, number: int) -> None:
    result = result_of(item)
    result.findings.clear()
    sender.begin(number)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    sender.send("end", list(result.findings.values()))


def _send_only(config: pytest.Config, sender: _Sender) -> None:
    """Has reports go to the parent, and what is printed into files of this process's own."""
    for name in ("terminalreporter", progress.NAME):
        if config.pluginmanager.hasplugin(name):
            config.pluginmanager.unregister(name=name)
    config.pluginmanager.register(sender)
    if capture := config.pluginmanager.getplugin("capturemanager"):
        capture.stop_global_capturing()
        capture.start_global_capturing()
