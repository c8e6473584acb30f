"""A whole load: conversations begun in their time, so many at once, until the plan or a person ends it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import aiohttp

from vllm_harness.defects.registry import Defects, known_deviations, load_defects
from vllm_harness.endpoint import API_PATHS, tls
from vllm_harness.errors import UsageError
from vllm_harness.load import health
from vllm_harness.load.health import Sample
from vllm_harness.load.keeping import Keeper
from vllm_harness.load.marks import Scripts, put_scripts
from vllm_harness.load.plan import Plan
from vllm_harness.load.talking import Setting, Taken, talk
from vllm_harness.load.tally import SAME_ID, Tally
from vllm_harness.protocol import Finding, KnownDeviation, apply_known
from vllm_harness.protocol.core.events import Json
from vllm_harness.scenarios import tied
from vllm_harness.scenarios.conversation import Served, context_of
from vllm_harness.scenarios.format import Scenario, Turn
from vllm_harness.scenarios.judging import Mismatch
from vllm_harness.scenarios.results import TurnResult
from vllm_harness.scenarios.transports.transport import Transport

IDS_KEPT = 65_536
KNOWN_KEPT = 10_000


@dataclass
class Load:
    """A load, while it runs and after it.

    Args:
        scenario: the conversation; its tools are functions.
        served: the server.
        plan: how much, and how.
        keeper: writes what comes.
        server_pid: of the server's first process, where it is on this machine.
        defects: of vLLM that are known; by default the package's.

    Attributes:
        by_transport: figures, by the transport's name.
        seconds: that it took.
        begun: conversations that were begun.
        at_once: conversations that are held now.
        cut_off: conversations that were ended before their time.
        late_s: how much later than planned a conversation began, at the most.
        cpu_s: processor time of this process.
        samples: of memory and handles, by whose they are.
        running: requests that the server still ran after the end; None where it does not tell.
        stopped: why it ended before its time; else empty.
    """

    scenario: Scenario
    served: Served
    plan: Plan
    keeper: Keeper
    server_pid: int | None = None
    defects: Defects | None = None
    by_transport: dict[str, Tally] = field(default_factory=dict)
    seconds: float = 0.0
    begun: int = 0
    at_once: int = 0
    cut_off: int = 0
    late_s: float = 0.0
    cpu_s: float = 0.0
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    running: int | None = None
    stopped: str = ""
    _started: float = 0.0

    def __post_init__(self) -> None:
        if self.scenario.mcp or self.scenario.built_in or self.scenario.in_background:
            raise UsageError(
                "a load has tools that are functions, and no answers in the background",
                hint="`vllm-harness scenario run` takes it",
            )
        if self.served.scripted and not self.scenario.scriptable:
            silent = next(turn.name for turn in self.scenario.turns if not turn.say)
            raise UsageError(
                f"turn {silent!r} does not say what the model says",
                hint="give each turn a `say`, or run the load on the live lane",
            )
        lacking = {each.api for each in self.plan.transports} & self.served.endpoint.lacking()
        if lacking:
            paths = ", ".join(API_PATHS[api] for api in sorted(lacking))
            raise UsageError(f"the server does not serve {paths}", hint="name the transports that it has")
        self._registry = load_defects() if self.defects is None else self.defects
        tied.check(self.scenario, self._registry)
        for transport in self.plan.transports:
            self.by_transport[transport.name] = Tally()
        self._ids = _Ids()
        self._known = _Known(
            known_deviations(self.served.entry.name, self.served.version, self._registry), self.served.version
        )

    @property
    def total(self) -> Tally:
        """The figures over all transports."""
        return Tally.of(self.by_transport.values())

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start, or that it took."""
        return self.seconds or (time.perf_counter() - self._started if self._started else 0.0)

    @property
    def wrong(self) -> bool:
        """Whether something is wrong, nothing was answered, or the server still runs a request."""
        total = self.total
        return total.wrong or bool(self.running) or not (total.passed or total.left)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Runs it; where `stop` is set, what runs is cut off, and what came is kept.

        Raises:
            DialectError: the model's family cannot express what a turn says.
            BookError: the server takes no scripts, or does not answer.
        """
        scripts = put_scripts(self.scenario, self.served) if self.served.scripted else None
        try:
            await self._run(scripts, stop or asyncio.Event())
            self.running = await health.left_running(self.served.endpoint)
        finally:
            if scripts is not None:
                await asyncio.to_thread(scripts.book.close)

    async def _run(self, scripts: Scripts | None, stop: asyncio.Event) -> None:
        context = context_of(self.served.endpoint)
        timeout = aiohttp.ClientTimeout(total=self.served.endpoint.request_s)
        connector = aiohttp.TCPConnector(limit=0, ssl=tls())
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=True) as session:
            self._started, cpu = time.perf_counter(), time.process_time()
            setting = Setting(
                self.scenario,
                self.plan,
                self.served,
                scripts,
                context,
                session,
                self._started,
                self._known.marked,
                self._tied,
                self._taken,
                self._between,
            )
            watching = [asyncio.create_task(each) for each in self._watches()]
            try:
                await self._until(stop, self._all(setting))
            finally:
                self.seconds, self.cpu_s = self.elapsed_s, time.process_time() - cpu
                for task in watching:
                    task.cancel()

    def _watches(self) -> Iterator[Coroutine[None, None, None]]:
        yield health.watch(lambda: self.elapsed_s, health.itself, self.samples.setdefault("client", []))
        if self.server_pid is not None:
            processes = partial(health.with_descendants, self.server_pid)
            yield health.watch(lambda: self.elapsed_s, processes, self.samples.setdefault("server", []))

    async def _until(self, stop: asyncio.Event, work: Coroutine[None, None, None]) -> None:
        working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not working.done():
                self.cut_off = self.at_once
                working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    async def _all(self, setting: Setting) -> None:
        most = self.plan.conversations(len(self.scenario.turns))
        gate = asyncio.Semaphore(self.plan.at_once or sys.maxsize)
        async with asyncio.TaskGroup() as conversations:
            for number, at_s in enumerate(self.plan.begins()):
                if number == most or not await self._may_begin(at_s, gate):
                    return
                self.begun, self.at_once = self.begun + 1, self.at_once + 1
                conversations.create_task(self._one(setting, number, gate))

    async def _may_begin(self, at_s: float, gate: asyncio.Semaphore) -> bool:
        """Waits until a further conversation may begin; False where the load's time is over."""
        end_s = self.plan.duration_s or float("inf")
        await asyncio.sleep(max(0.0, min(at_s, end_s) - self.elapsed_s))
        await gate.acquire()
        if self.elapsed_s >= end_s:
            return False
        if self.plan.rate:
            self.late_s = max(self.late_s, self.elapsed_s - at_s)
        return True

    async def _one(self, setting: Setting, number: int, gate: asyncio.Semaphore) -> None:
        try:
            await talk(setting, number)
        finally:
            self.at_once -= 1
            gate.release()

    def _tied(self, turn: Turn, result: TurnResult, label: str) -> None:
        tied.mark_turn(turn, result, label, self.served, self._registry)

    def _taken(self, taken: Taken) -> None:
        answer = taken.result.answer
        if answer is not None and answer.id not in ("", "None") and not self._ids.fresh(answer.id):
            taken.result.mismatches.append(Mismatch(SAME_ID, "an id of its own", answer.id))
        self.by_transport[taken.transport.name].add(taken)
        self.keeper.turn(taken)

    def _between(self, conversation: int, transport: Transport, findings: list[Finding]) -> None:
        self.by_transport[transport.name].add_findings(findings)
        self.keeper.between(conversation, transport, findings)

    def as_json(self) -> Json:
        """The figures."""
        total = self.total
        return {
            "scenario": self.scenario.title,
            "model": self.served.model,
            "vllm": self.served.version,
            "scripted": self.served.scripted,
            "concurrency": self.plan.at_once,
            "rate": self.plan.rate,
            "cancel": self.plan.cancel,
            "seed": self.plan.seed,
            "seconds": round(self.seconds, 3),
            "conversations": self.begun,
            "cut_off": self.cut_off,
            "late_s": round(self.late_s, 3),
            "client_cpu_ms_a_request": round(self.cpu_s * 1e3 / total.requests, 3)
            if total.requests
            else None,
            "left_running": self.running,
            "stopped": self.stopped,
            "total": total.as_json(self.seconds),
            "by_transport": {name: tally.as_json(self.seconds) for name, tally in self.by_transport.items()},
            "drift": {
                whose: found.as_json()
                for whose, samples in self.samples.items()
                if (found := health.drift(samples)) is not None
            },
        }


class _Ids:
    """The ids of the last answers; no two answers have the same."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, None] = OrderedDict()

    def fresh(self, identifier: str) -> bool:
        """Notes an id; False where an answer had it before."""
        if identifier in self._kept:
            return False
        self._kept[identifier] = None
        if len(self._kept) > IDS_KEPT:
            self._kept.popitem(last=False)
        return True


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
