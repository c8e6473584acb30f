"""A client of a load, which starts its share of the conversations on time."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import aiohttp

from vllm_harness._errors import HarnessError
from vllm_harness._exchange.endpoint import tls
from vllm_harness._protocol import Finding, KnownDeviation, apply_known
from vllm_harness._protocol.core.events import Json
from vllm_harness.extras.load import health
from vllm_harness.extras.load.conversations import ClientJob, Listener, LoadContext, hold_conversation
from vllm_harness.extras.load.health import ProcessSample
from vllm_harness.extras.load.kept import KeptConnections

KNOWN_KEPT = 10_000


@dataclass
class ClientState:
    """The progress of a client.

    Attributes:
        started: the count of conversations that it has started.
        open: the numbers of the conversations that it is holding.
        cut_off: the number of conversations that were cancelled.
        late_s: the largest delay of a conversation's start.
        cpu_s: the CPU time of its process.
        sent_again: the number of requests that it sent again, as the server closed their kept connection.
    """

    started: int = 0
    open: set[int] = field(default_factory=set)
    cut_off: int = 0
    late_s: float = 0.0
    cpu_s: float = 0.0
    sent_again: int = 0


class LoadClient:
    """Holds its share of a load's conversations.

    Args:
        job: the conversations to hold, and the server.
        listener: receives the results.
        done: the numbers of conversations that have already ended; they are not held again.
        since_s: how many seconds ago the load started.

    Attributes:
        state: the client's progress.
        samples: measurements of this process's memory and handles.
    """

    def __init__(
        self, job: ClientJob, listener: Listener, done: Collection[int] = (), since_s: float = 0.0
    ) -> None:
        self.state = ClientState()
        self.samples: list[ProcessSample] = []
        self._job, self._listener = job, listener
        self._done, self._since_s = done, since_s
        self._started = time.perf_counter() - since_s
        self._known = _KnownFindings(job.known, job.version)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the load started."""
        return time.perf_counter() - self._started

    async def run(self, stop: asyncio.Event) -> None:
        """Holds the conversations; setting `stop` cancels open conversations."""
        job, before = self._job, time.process_time()
        timeout = aiohttp.ClientTimeout(total=job.endpoint.request_s)
        connector = KeptConnections(self._count_again, limit=0, ssl=tls(job.endpoint.ca))
        watching = asyncio.create_task(health.watch(lambda: self.elapsed_s, health.own_process, self.samples))
        try:
            async with aiohttp.ClientSession(
                connector=connector, timeout=timeout, trust_env=True, middlewares=(connector.send,)
            ) as session:
                context = LoadContext(job, session, self._started, self._known.marked, self._listener)
                await self._until(stop, self._all(context))
        finally:
            self.state.cpu_s = time.process_time() - before
            watching.cancel()

    def _count_again(self) -> None:
        self.state.sent_again += 1

    async def _until(self, stop: asyncio.Event, work: Coroutine[None, None, None]) -> None:
        working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not working.done():
                self.state.cut_off = len(self.state.open)
                working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    async def _all(self, context: LoadContext) -> None:
        plan, share = self._job.plan, self._job.share
        gate = asyncio.Semaphore(share.at_once(plan) or sys.maxsize)
        async with asyncio.TaskGroup() as conversations:
            for number, at_s in share.starts(plan, len(self._job.scenario.turns)):
                if number in self._done:
                    continue
                if not await self._wait_to_start(at_s, gate):
                    return
                self.state.started += 1
                self.state.open.add(number)
                conversations.create_task(self._hold(context, number, gate))

    async def _wait_to_start(self, at_s: float, gate: asyncio.Semaphore) -> bool:
        """Waits until another conversation may start; returns False if the load's time is over."""
        plan = self._job.plan
        end_s = plan.duration_s or float("inf")
        await asyncio.sleep(max(0.0, min(at_s, end_s) - self.elapsed_s))
        await gate.acquire()
        if self.elapsed_s >= end_s:
            return False
        if plan.rate and at_s >= self._since_s:  # conversations of a lost client necessarily start late
            self.state.late_s = max(self.state.late_s, self.elapsed_s - at_s)
        return True

    async def _hold(self, context: LoadContext, number: int, gate: asyncio.Semaphore) -> None:
        try:
            await hold_conversation(context, number)
            self._listener.on_end(number)
        finally:
            self.state.open.discard(number)
            gate.release()


class _KnownFindings:
    """Marks findings that are known deviations, and looks up each only once."""

    def __init__(self, deviations: Sequence[KnownDeviation], version: str) -> None:
        self._deviations, self._version = deviations, version
        self._marks: dict[tuple[str, str, str, str], str] = {}

    def marked(self, finding: Finding) -> Finding:
        """Adds the reference of the known deviation to a finding, if there is one."""
        key = (finding.code, finding.path, finding.expected, finding.kind)
        if key not in self._marks:
            if len(self._marks) >= KNOWN_KEPT:
                self._marks.clear()
            self._marks[key] = apply_known([finding], self._deviations, self._version)[0].known
        return replace(finding, known=self._marks[key]) if self._marks[key] else finding


class Clients(Protocol):
    """The clients that together hold all conversations of a load."""

    @property
    def states(self) -> Sequence[ClientState]:
        """The progress of each client."""

    @property
    def samples(self) -> dict[str, list[ProcessSample]]:
        """Measurements of memory and handles, by the client's name."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the load started; 0 before."""

    @property
    def errors(self) -> Sequence[HarnessError]:
        """The errors of the clients that were lost for good; their conversations were not held."""

    async def run(self, job: ClientJob, listener: Listener, stop: asyncio.Event) -> None:
        """Holds all conversations to their end; setting `stop` cancels open conversations.

        Raises:
            HarnessError: the conversations cannot be held.
        """

    def as_json(self) -> Json:
        """The clients' part of the report; empty if this process is the only client."""


class LocalClient:
    """The only client of a load, which runs in this process."""

    def __init__(self) -> None:
        self._client: LoadClient | None = None

    @property
    def states(self) -> Sequence[ClientState]:
        """See `Clients`."""
        return [self._client.state] if self._client else []

    @property
    def samples(self) -> dict[str, list[ProcessSample]]:
        """See `Clients`."""
        return {"client": self._client.samples if self._client else []}

    @property
    def elapsed_s(self) -> float:
        """See `Clients`."""
        return self._client.elapsed_s if self._client else 0.0

    @property
    def errors(self) -> Sequence[HarnessError]:
        """See `Clients`."""
        return ()

    async def run(self, job: ClientJob, listener: Listener, stop: asyncio.Event) -> None:
        """See `Clients`."""
        self._client = LoadClient(job, listener)
        await self._client.run(stop)

    def as_json(self) -> Json:
        """See `Clients`."""
        return {}
