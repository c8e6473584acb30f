"""A client's part of a load: its conversations begun in their time, so many at once, until its end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import aiohttp

from vllm_harness._defects.registry import Defects
from vllm_harness._exchange.endpoint import tls
from vllm_harness._protocol import Finding, KnownDeviation, apply_known
from vllm_harness._scenarios import tied
from vllm_harness._scenarios.conversation import Served
from vllm_harness._scenarios.format import Scenario, Turn
from vllm_harness._scenarios.results import TurnResult
from vllm_harness._scenarios.transports import Transport
from vllm_harness.extras.load import health
from vllm_harness.extras.load.conversations import LoadContext, LoadTurn, talk
from vllm_harness.extras.load.health import ProcessSample
from vllm_harness.extras.load.marks import LoadScripts
from vllm_harness.extras.load.plan import LoadShare, Plan

KNOWN_KEPT = 10_000


@dataclass(frozen=True)
class ClientJob:
    """What a client holds, as it travels to its process.

    Attributes:
        scenario, plan, part, served: what is held, how, which part of it, and where.
        scripts: what the model says; None where it says what it likes.
        context: length of the model's context, where it is known.
        known: deviations that are known of vLLM.
        named: the defects that its turns name, by id.
    """

    scenario: Scenario
    plan: Plan
    part: LoadShare
    served: Served
    scripts: LoadScripts | None
    context: int | None
    known: Sequence[KnownDeviation] = ()
    named: Defects = field(default_factory=dict)


@dataclass
class ClientState:
    """How far a client is.

    Attributes:
        begun: conversations that it has begun.
        open: those that it holds now, by their numbers.
        cut_off: conversations that were ended before their time.
        late_s: how much later than planned a conversation began, at the most.
        cpu_s: processor time of its process.
    """

    begun: int = 0
    open: set[int] = field(default_factory=set)
    cut_off: int = 0
    late_s: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Listener:
    """Receives what comes of conversations.

    Attributes:
        taken: a turn.
        between: a conversation's number, its transport, and what is wrong between its turns.
        ended: the number of a conversation that was held to its end.
    """

    taken: Callable[[LoadTurn], None]
    between: Callable[[int, Transport, list[Finding]], None]
    ended: Callable[[int], None] = lambda _: None


class LoadClient:
    """Holds the conversations of a part.

    Args:
        held: what.
        listener: receives what comes.
        done: conversations that have ended before, and are not held again.
        since_s: how many seconds ago the load began.

    Attributes:
        state: how far it is.
        samples: memory and handles of this process.
    """

    def __init__(
        self, held: ClientJob, listener: Listener, done: Collection[int] = (), since_s: float = 0.0
    ) -> None:
        self.state = ClientState()
        self.samples: list[ProcessSample] = []
        self._held, self._listener = held, listener
        self._done, self._since_s = done, since_s
        self._started = time.perf_counter() - since_s
        self._known = _Known(held.known, held.served.version)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the load began."""
        return time.perf_counter() - self._started

    async def run(self, stop: asyncio.Event) -> None:
        """Holds them; where `stop` is set, what runs is cut off."""
        held, before = self._held, time.process_time()
        timeout = aiohttp.ClientTimeout(total=held.served.endpoint.request_s)
        connector = aiohttp.TCPConnector(limit=0, ssl=tls())
        watching = asyncio.create_task(health.watch(lambda: self.elapsed_s, health.own_process, self.samples))
        try:
            async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=True) as session:
                await self._until(stop, self._all(self._setting(session)))
        finally:
            self.state.cpu_s = time.process_time() - before
            watching.cancel()

    def _setting(self, session: aiohttp.ClientSession) -> LoadContext:
        held, listener = self._held, self._listener
        return LoadContext(
            held.scenario,
            held.plan,
            held.served,
            held.scripts,
            held.context,
            session,
            self._started,
            self._known.marked,
            self._tied,
            listener.taken,
            listener.between,
        )

    def _tied(self, turn: Turn, result: TurnResult, label: str) -> None:
        tied.mark_turn(turn, result, label, self._held.served, self._held.named)

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

    async def _all(self, setting: LoadContext) -> None:
        plan, part = self._held.plan, self._held.part
        gate = asyncio.Semaphore(part.at_once(plan) or sys.maxsize)
        async with asyncio.TaskGroup() as conversations:
            for number, at_s in part.begins(plan, len(self._held.scenario.turns)):
                if number in self._done:
                    continue
                if not await self._may_begin(at_s, gate):
                    return
                self.state.begun += 1
                self.state.open.add(number)
                conversations.create_task(self._one(setting, number, gate))

    async def _may_begin(self, at_s: float, gate: asyncio.Semaphore) -> bool:
        """Waits until a further conversation may begin; False where the load's time is over."""
        plan = self._held.plan
        end_s = plan.duration_s or float("inf")
        await asyncio.sleep(max(0.0, min(at_s, end_s) - self.elapsed_s))
        await gate.acquire()
        if self.elapsed_s >= end_s:
            return False
        if plan.rate and at_s >= self._since_s:  # what another client has lost is late through no fault here
            self.state.late_s = max(self.state.late_s, self.elapsed_s - at_s)
        return True

    async def _one(self, setting: LoadContext, number: int, gate: asyncio.Semaphore) -> None:
        try:
            await talk(setting, number)
            self._listener.ended(number)
        finally:
            self.state.open.discard(number)
            gate.release()


class _Known:
    """Marks findings that are known; the same finding comes with every stream, and is looked up once."""

    def __init__(self, deviations: Sequence[KnownDeviation], version: str) -> None:
        self._deviations, self._version = deviations, version
        self._marks: dict[tuple[str, str, str, str], str] = {}

    def marked(self, finding: Finding) -> Finding:
        """The finding, with the reference of the deviation that it belongs to."""
        key = (finding.code, finding.path, finding.expected, finding.kind)
        if key not in self._marks:
            if len(self._marks) >= KNOWN_KEPT:
                self._marks.clear()
            self._marks[key] = apply_known([finding], self._deviations, self._version)[0].known
        return replace(finding, known=self._marks[key]) if self._marks[key] else finding
