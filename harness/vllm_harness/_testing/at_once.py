"""Tests of one target at the same time: forks of this process share its server, and take tests from a queue.

On the scripted lane a test is answered from a book of its own, so it does not matter to it what others send
meanwhile; one that is about the whole server is marked `vllm_alone`, and runs here before any fork uses that
server. Tests with servers of their own run in this process, which sets the memory aside before it forks, and
where there is memory for that also in forks: in one of them from the beginning, in the others once nothing is
left that they could share. All reports are made here, in the order of collection as far as they have come.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any, Literal

import pytest

from vllm_harness._errors import HarnessError
from vllm_harness._protocol import Finding
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.fork import ChunkQueue, ForkMessage, Forks
from vllm_harness._testing.recorder import TARGET_OF
from vllm_harness._testing.session import RUN, TARGET, PytestRun, result_of, servers_of

CHUNK = 4
"""Tests of a module that a fork takes at a time."""
OWN_CHUNK = 64
"""The same where they have servers of their own, which a process starts for itself."""
WORTH = 24
"""Fewer tests of a target than these are not worth a fork."""


@dataclass(frozen=True)
class ForkPlan:
    """The tests of one target, by where they run.

    Attributes:
        first: starts the target's server.
        alone: run here next, while no other test uses that server.
        own: with servers of their own, in chunks of one module; this process takes them, and forks do. The
            large ones come first: what they wait for is over before the run's end.
        shared: those that the forks take, in chunks of one module; first the long ones, each by itself.
    """

    first: pytest.Item
    alone: list[pytest.Item]
    own: list[list[pytest.Item]]
    shared: list[list[pytest.Item]]

    @property
    def servers(self) -> int:
        """How many servers a test of this process's uses at most, the target's included."""
        return max(map(servers_of, chain(self.alone, *self.own)), default=1)


def fork_plan(items: Sequence[pytest.Item]) -> ForkPlan | None:
    """How the tests of a target are divided; None where forks would not be worth it."""
    alone = [item for item in items if item.get_closest_marker("vllm_alone")]
    own = [item for item in items if servers_of(item) != 1 and item not in alone]
    apart = {*own, *alone}
    shared = [item for item in items if item not in apart]
    if len(shared) < WORTH:
        return None
    first, *others = shared
    long = [item for item in others if item.get_closest_marker("vllm_long")]
    short = [item for item in others if item not in long]
    return ForkPlan(
        first,
        alone,
        own=sorted(chunks(own, OWN_CHUNK), key=len, reverse=True),
        shared=[*chunks(long, 1), *chunks(short, CHUNK)],
    )


def chunks(items: Sequence[pytest.Item], size: int) -> Iterator[list[pytest.Item]]:
    """The items in pieces, each of one module."""
    for _, of_module in groupby(items, key=lambda item: item.path):
        same = list(of_module)
        yield from (same[start : start + size] for start in range(0, len(same), size))


def queues_of_forks(own: ChunkQueue, shared: ChunkQueue, forks: int) -> list[tuple[ChunkQueue, ChunkQueue]]:
    """What each fork takes chunks from, first and then: the first one helps with the own servers at once."""
    return [(own, shared), *[(shared, own)] * (forks - 1)]


@dataclass
class ReceivedReports:
    """The messages of forks about each test that they take, until it is reported.

    Attributes:
        queue: the tests in the order in which they are reported.
        messages: of the tests begun.
        done: the tests that were run to their end, or by this process.
    """

    queue: ChunkQueue
    messages: dict[int, list[ForkMessage]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    reported: int = 0

    def take(self, message: ForkMessage) -> None:
        """Notes a message where it is of one of these tests."""
        number = message.test - self.queue.first
        if not 0 <= number < len(self.queue.tests):
            return
        self.messages.setdefault(number, []).append(message)
        if message.kind == "end":
            self.done.add(number)

    def ready(self) -> Iterator[tuple[pytest.Item, list[ForkMessage]]]:
        """The next tests that ran to their end, as long as none before them is missing."""
        while self.reported in self.done:
            number, self.reported = self.reported, self.reported + 1
            if messages := self.messages.pop(number, []):
                yield self.queue.tests[number], messages

    def rest(self) -> Iterator[tuple[pytest.Item, list[ForkMessage]]]:
        """All others, when every fork has ended; a test that none has begun has no messages."""
        for number in range(self.reported, len(self.queue.tests)):
            messages = self.messages.pop(number, [])
            if messages or number not in self.done:
                yield self.queue.tests[number], messages
        self.reported = len(self.queue.tests)


class AtOnce:
    """A pytest plugin: its loop runs tests in so many forks beside this process.

    Args:
        forks: how many.
    """

    def __init__(self, forks: int) -> None:
        self._forks = forks

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Runs everything, target after target."""
        run = session.config.stash.get(RUN, None)
        if run is None or session.testsfailed or not _suits(session.config):
            return None
        for target, group in groupby(session.items, key=lambda item: item.stash.get(TARGET, None)):
            items = list(group)
            divided = fork_plan(items) if target is not None and target.lane == "scripted" else None
            if divided is None:
                _run_all(session, items)
            else:
                self._run_divided(session, run, divided)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Puts reports and results into the order of collection, whichever came first."""
        order = {item.nodeid: place for place, item in enumerate(session.items)}
        reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
        for reports in reporter.stats.values() if reporter else ():
            reports.sort(key=lambda report: order.get(getattr(report, "nodeid", ""), -1))
        if run := session.config.stash.get(RUN, None):
            for result in run.results.values():
                result.tests = dict(sorted(result.tests.items(), key=lambda test: order.get(test[0], -1)))

    def _run_divided(self, session: pytest.Session, run: PytestRun, divided: ForkPlan) -> None:
        _run_all(session, [divided.first])
        server = run.servers.last_used
        if server is None or not server.alive():
            undone = list(chain(divided.alone, *divided.own, *divided.shared))
        else:
            with run.servers.lent(server, divided.servers):
                with suppress(HarnessError):  # which each test then meets by itself
                    run.servers.use(server)  # others may have waited for its memory, and got it
                undone = self._share(session, server, divided)
        _run_all(session, undone)

    def _share(self, session: pytest.Session, server: RemoteServer, divided: ForkPlan) -> list[pytest.Item]:
        """Runs shared tests in forks, others here, and with own servers in both; returns what did not run."""
        shared = ChunkQueue(divided.shared, opened=False)
        own = ChunkQueue(divided.own, len(shared.tests))
        every = [ReceivedReports(shared), ReceivedReports(own)]
        forks = Forks(session, server, queues_of_forks(own, shared, self._forks))
        try:
            self._run_beside(session, divided.alone, forks, every)
            shared.open()
            for first, chunk in own.taken():
                every[1].done.update(range(first - own.first, first - own.first + len(chunk)))
                self._run_beside(session, chunk, forks, every)
            for message in forks.remaining():
                _take(every, message)
                _report_all(session, _ready(every))
            others = [test for received in every for test in received.rest()]
            _report_all(session, [(item, messages) for item, messages in others if messages])
        finally:
            forks.end()
        return [item for item, messages in others if not messages]

    @staticmethod
    def _run_beside(
        session: pytest.Session, items: Sequence[pytest.Item], forks: Forks, every: Sequence[ReceivedReports]
    ) -> None:
        """Runs tests here, and after each reports what has come from the forks."""
        for _ in _run_here(session, items):
            for message in forks.arrived():
                _take(every, message)
            _report_all(session, _ready(every))


def _take(every: Sequence[ReceivedReports], message: ForkMessage) -> None:
    for received in every:
        received.take(message)


def _ready(every: Sequence[ReceivedReports]) -> Iterator[tuple[pytest.Item, list[ForkMessage]]]:
    for received in every:
        yield from received.ready()


def _run_here(session: pytest.Session, items: Sequence[pytest.Item]) -> Iterator[None]:
    """Runs tests one after the other; what they share with the session, the target's server, stays."""
    for item, following in zip(items, [*items[1:], session], strict=False):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        _stop_where_wanted(session)
        yield


def _run_all(session: pytest.Session, items: Sequence[pytest.Item]) -> None:
    for _ in _run_here(session, items):
        pass


def _suits(config: pytest.Config) -> bool:
    option = config.option
    watched = any(getattr(option, name, None) for name in ("collectonly", "usepdb", "trace", "setupplan"))
    return not (watched or option.vllm_record_tokens or option.vllm_replay_tokens or option.capture == "no")


def _report_all(session: pytest.Session, tests: Iterable[tuple[pytest.Item, list[ForkMessage]]]) -> None:
    for item, messages in tests:
        _report(item, messages)
        _stop_where_wanted(session)


def _report(item: pytest.Item, messages: Sequence[ForkMessage]) -> None:
    """Does what pytest would have done, had the test run here."""
    hook = item.config.hook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for message in messages:
        match message.kind:
            case "report":
                report = hook.pytest_report_from_serializable(config=item.config, data=message.content)
                hook.pytest_runtest_logreport(report=report)
            case "warning":
                with warnings.catch_warnings():
                    hook.pytest_warning_recorded.call_historic(kwargs=message.content)
            case "end":
                findings: list[Finding] = message.content
                result_of(item).add(findings)
    if messages[-1].kind != "end":
        hook.pytest_runtest_logreport(report=_broken_off(item))
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _broken_off(item: pytest.Item) -> pytest.TestReport:
    keywords: dict[str, Literal[1]] = dict.fromkeys(item.keywords, 1)
    why = "the process that ran it ended before the test did"
    report = pytest.TestReport(item.nodeid, item.location, keywords, "failed", why, "call")
    setattr(report, TARGET_OF, item.stash[TARGET].id)
    return report


def _stop_where_wanted(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
