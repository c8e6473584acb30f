"""Runs the tests of a target in parallel: forks of this process share its server and take tests from a queue.

On the scripted lane each test has its own script book, so several tests can use a server at the same time. A
test that needs the server to itself is marked `vllm_alone`, and runs in this process before any fork uses the
server. Tests that start further servers run in this process, which reserves memory for them before it forks,
and if there is enough memory also in forks: in one fork from the start, in the others once no shared test is
left. This process reports all tests, in the order of collection as far as their reports have arrived.
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
"""How many tests from a module a fork takes at a time."""
OWN_CHUNK = 64
"""How many tests that start further servers a process takes at a time; it starts its own servers."""
MIN_SHARED = 24
"""How many shared tests a target must have for forks to be worthwhile."""


@dataclass(frozen=True)
class ForkPlan:
    """The plan of where and when the tests of a target run.

    Attributes:
        first: the test that starts the target's server, in this process.
        alone: tests that run next in this process, while no other test uses the server.
        own: tests that start further servers, in chunks of one module, for this process and the forks; the
            largest chunks first, so that none of them is left for the end.
        shared: tests for the forks, in chunks of one module; the long ones first, each in its own chunk.
    """

    first: pytest.Item
    alone: list[pytest.Item]
    own: list[list[pytest.Item]]
    shared: list[list[pytest.Item]]

    @property
    def servers(self) -> int:
        """The maximum number of servers that a test in this process uses, including the target's."""
        return max(map(servers_of, chain(self.alone, *self.own)), default=1)


def fork_plan(items: Sequence[pytest.Item]) -> ForkPlan | None:
    """Divides the tests of a target; returns None if there are too few for forks."""
    alone = [item for item in items if item.get_closest_marker("vllm_alone")]
    own = [item for item in items if servers_of(item) != 1 and item not in alone]
    not_shared = {*own, *alone}
    shared = [item for item in items if item not in not_shared]
    if len(shared) < MIN_SHARED:
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
    """Splits the items into chunks of at most `size`, each of one module."""
    for _, group in groupby(items, key=lambda item: item.path):
        of_module = list(group)
        yield from (of_module[start : start + size] for start in range(0, len(of_module), size))


def queues_of_forks(own: ChunkQueue, shared: ChunkQueue, forks: int) -> list[tuple[ChunkQueue, ChunkQueue]]:
    """The queues of each fork, in order; one fork starts with the tests that need further servers."""
    return [(own, shared), *[(shared, own)] * (forks - 1)]


@dataclass
class ReceivedReports:
    """The messages from forks about the tests of a queue, until these tests are reported.

    Attributes:
        queue: the tests, in the order of their reports.
        messages: the messages about each test that has started, by its number in the queue.
        done: the numbers of the tests that have ended, or that this process runs.
        reported: how many tests were reported.
    """

    queue: ChunkQueue
    messages: dict[int, list[ForkMessage]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    reported: int = 0

    def add(self, message: ForkMessage) -> None:
        """Stores a message if it is about one of these tests."""
        number = message.test - self.queue.first
        if not 0 <= number < len(self.queue.tests):
            return
        self.messages.setdefault(number, []).append(message)
        if message.kind == "end":
            self.done.add(number)

    def ready(self) -> Iterator[tuple[pytest.Item, list[ForkMessage]]]:
        """The next tests that have ended, up to the first that has not, with their messages."""
        while self.reported in self.done:
            number, self.reported = self.reported, self.reported + 1
            if messages := self.messages.pop(number, []):
                yield self.queue.tests[number], messages

    def rest(self) -> Iterator[tuple[pytest.Item, list[ForkMessage]]]:
        """All other tests, once every fork has ended; a test that never started has no messages."""
        for number in range(self.reported, len(self.queue.tests)):
            messages = self.messages.pop(number, [])
            if messages or number not in self.done:
                yield self.queue.tests[number], messages
        self.reported = len(self.queue.tests)


class ParallelLoop:
    """A pytest plugin that runs tests in forks of this process.

    Args:
        forks: the number of forks.
    """

    def __init__(self, forks: int) -> None:
        self._forks = forks

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Runs all tests, target by target."""
        run = session.config.stash.get(RUN, None)
        if run is None or session.testsfailed or not _can_fork(session.config):
            return None
        for target, group in groupby(session.items, key=lambda item: item.stash.get(TARGET, None)):
            items = list(group)
            plan = fork_plan(items) if target is not None and target.lane == "scripted" else None
            if plan is None:
                _run_all(session, items)
            else:
                self._run_planned(session, run, plan)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Sorts reports and results into the order of collection."""
        order = {item.nodeid: index for index, item in enumerate(session.items)}
        reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
        for reports in reporter.stats.values() if reporter else ():
            reports.sort(key=lambda report: order.get(getattr(report, "nodeid", ""), -1))
        if run := session.config.stash.get(RUN, None):
            for result in run.results.values():
                result.tests = dict(sorted(result.tests.items(), key=lambda test: order.get(test[0], -1)))

    def _run_planned(self, session: pytest.Session, run: PytestRun, plan: ForkPlan) -> None:
        _run_all(session, [plan.first])
        server = run.servers.last_used
        if server is None or not server.alive():
            not_run = list(chain(plan.alone, *plan.own, *plan.shared))
        else:
            with run.servers.lent(server, plan.servers):
                with suppress(HarnessError):  # each test raises the error again
                    run.servers.use(server)  # it may have been stopped for another run that needed its memory
                not_run = self._run_in_forks(session, server, plan)
        _run_all(session, not_run)

    def _run_in_forks(
        self, session: pytest.Session, server: RemoteServer, plan: ForkPlan
    ) -> list[pytest.Item]:
        """Runs the tests in forks and in this process, as planned; returns those that did not run."""
        shared = ChunkQueue(plan.shared, opened=False)
        own = ChunkQueue(plan.own, len(shared.tests))
        of_shared, of_own = ReceivedReports(shared), ReceivedReports(own)
        forks = Forks(session, server, queues_of_forks(own, shared, self._forks))

        def report(messages: Iterable[ForkMessage]) -> None:
            for message in messages:
                of_shared.add(message)
                of_own.add(message)
                _report_all(session, chain(of_shared.ready(), of_own.ready()))

        try:
            for _ in _run_each(session, plan.alone):
                report(forks.arrived())
            shared.open()
            for first, chunk in own.take():
                of_own.done.update(range(first - own.first, first - own.first + len(chunk)))
                for _ in _run_each(session, chunk):
                    report(forks.arrived())
            report(forks.remaining())
            others = [*of_shared.rest(), *of_own.rest()]
            _report_all(session, [(item, messages) for item, messages in others if messages])
        finally:
            forks.end()
        return [item for item, messages in others if not messages]


def _run_each(session: pytest.Session, items: Sequence[pytest.Item]) -> Iterator[None]:
    """Runs tests one after the other in this process; session fixtures, such as the server, are kept."""
    for item, following in zip(items, [*items[1:], session], strict=False):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        _check_stop(session)
        yield


def _run_all(session: pytest.Session, items: Sequence[pytest.Item]) -> None:
    for _ in _run_each(session, items):
        pass


def _can_fork(config: pytest.Config) -> bool:
    option = config.option
    attended = any(getattr(option, name, None) for name in ("collectonly", "usepdb", "trace", "setupplan"))
    return not (attended or option.vllm_record_tokens or option.vllm_replay_tokens or option.capture == "no")


def _report_all(session: pytest.Session, tests: Iterable[tuple[pytest.Item, list[ForkMessage]]]) -> None:
    for item, messages in tests:
        _report(item, messages)
        _check_stop(session)


def _report(item: pytest.Item, messages: Sequence[ForkMessage]) -> None:
    """Calls the hooks that pytest would have called, had the test run in this process."""
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
        hook.pytest_runtest_logreport(report=_report_of_dead_fork(item))
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _report_of_dead_fork(item: pytest.Item) -> pytest.TestReport:
    keywords: dict[str, Literal[1]] = dict.fromkeys(item.keywords, 1)
    why = "the process that ran it ended before the test did"
    report = pytest.TestReport(item.nodeid, item.location, keywords, "failed", why, "call")
    setattr(report, TARGET_OF, item.stash[TARGET].id)
    return report


def _check_stop(session: pytest.Session) -> None:
    """Raises the exception with which pytest's own loop ends if the run should stop."""
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
