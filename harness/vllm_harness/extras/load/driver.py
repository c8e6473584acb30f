"""Runs a load: clients hold the conversations; their turns are counted and recorded here."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from vllm_harness._defects.registry import Defects, known_deviations, load_defects
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import Finding
from vllm_harness._protocol.core.events import Json
from vllm_harness._scenarios.conversation import context_of
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.known_defects import named_defects
from vllm_harness._scenarios.mismatches import TurnMismatch
from vllm_harness._scenarios.transports import Transport
from vllm_harness.extras.load import health
from vllm_harness.extras.load.client import Clients, LocalClient
from vllm_harness.extras.load.conversations import ClientJob, Listener, LoadTurn
from vllm_harness.extras.load.health import ProcessSample
from vllm_harness.extras.load.marks import put_scripts
from vllm_harness.extras.load.plan import LoadShare, Plan
from vllm_harness.extras.load.recorder import LoadRecorder
from vllm_harness.extras.load.tally import SAME_ID, LoadTally

IDS_REMEMBERED = 65_536


@dataclass
class Load:
    """A load, both while it runs and after its end.

    Args:
        scenario: the conversation to hold; all its tools are functions.
        server: the server under test.
        plan: how many conversations there are, and when they start.
        recorder: writes the run folder.
        server_pid: the server's first process, if it runs on this machine.
        defects: the known defects of vLLM; by default those in the package.
        clients: the clients that hold the conversations; by default this process.

    Attributes:
        by_transport: the counts and times of turns, by the transport's name.
        seconds: the duration of the load.
        running: the requests that the server still ran after the end; None if it does not report them.
        stopped: the name of the signal that ended the load early; empty if it was not ended early.
    """

    scenario: Scenario
    server: VllmServer
    plan: Plan
    recorder: LoadRecorder
    server_pid: int | None = None
    defects: Defects | None = None
    clients: Clients = field(default_factory=LocalClient)
    by_transport: dict[str, LoadTally] = field(default_factory=dict)
    seconds: float = 0.0
    running: int | None = None
    stopped: str = ""
    _server: dict[str, list[ProcessSample]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.scenario.mcp or self.scenario.built_in or self.scenario.in_background:
            raise UsageError(
                "a load supports function tools only, and no background responses",
                hint="run the scenario with `vllm-harness scenario run`",
            )
        if self._scripted and not self.scenario.scriptable:
            silent = next(turn.name for turn in self.scenario.turns if not turn.say)
            raise UsageError(
                f"turn {silent!r} has no `say`, which the scripted lane needs",
                hint="give every turn a `say`, or run the load on the live lane",
            )
        lacking = {transport.api for transport in self.plan.transports} & self.server.endpoint.lacking()
        if lacking:
            paths = ", ".join(API_PATHS[api] for api in sorted(lacking))
            raise UsageError(
                f"the server does not serve {paths}", hint="choose other transports with --transport"
            )
        registry = load_defects() if self.defects is None else self.defects
        self._named = named_defects(self.scenario, registry, self.server)
        for transport in self.plan.transports:
            self.by_transport[transport.name] = LoadTally()
        self._ids = _Ids()

    @property
    def _scripted(self) -> bool:
        return self.server.lane == "scripted"

    @property
    def total(self) -> LoadTally:
        """The counts and times of the turns over all transports."""
        return LoadTally.of(self.by_transport.values())

    @property
    def started(self) -> int:
        """The number of conversations that were started, each counted once."""
        return sum(state.started for state in self.clients.states)

    @property
    def at_once(self) -> int:
        """The number of conversations that are open now."""
        return sum(len(state.open) for state in self.clients.states)

    @property
    def cut_off(self) -> int:
        """The number of conversations that were cancelled."""
        return sum(state.cut_off for state in self.clients.states)

    @property
    def sent_again(self) -> int:
        """The number of requests that were sent again, as the server closed their kept connection."""
        return sum(state.sent_again for state in self.clients.states)

    @property
    def late_s(self) -> float:
        """The largest delay of a conversation's start, in seconds."""
        return max((state.late_s for state in self.clients.states), default=0.0)

    @property
    def cpu_s(self) -> float:
        """The CPU time of the clients, in seconds."""
        return sum(state.cpu_s for state in self.clients.states)

    @property
    def samples(self) -> dict[str, list[ProcessSample]]:
        """The measurements of memory and handles, by the name of the process."""
        return {**self.clients.samples, **self._server}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start; after the end, the duration."""
        return self.seconds or self.clients.elapsed_s

    @property
    def wrong(self) -> bool:
        """Whether there is a problem, no request was answered, or the server still runs a request."""
        total = self.total
        return total.wrong or bool(self.running) or not (total.passed or total.known_turns or total.left)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Runs the load; setting `stop` cancels open conversations, but the records so far are kept.

        Raises:
            DialectError: the model's family cannot express what a turn says.
            BookError: the server does not accept scripts, or does not answer.
            ClusterError: the clients cannot be started on the cluster.
        """
        server = self.server
        book, scripts = put_scripts(self.scenario, server) if self._scripted else (None, None)
        try:
            context = await asyncio.to_thread(context_of, server.endpoint)
            known = known_deviations(server.entry.name, server.vllm_version, self.defects)
            job = ClientJob(
                self.scenario,
                self.plan,
                LoadShare(),
                server.endpoint,
                server.model,
                server.vllm_version,
                scripts,
                context,
                known,
                self._named,
            )
            async with self._watched():
                await self.clients.run(
                    job, Listener(self._add_turn, self._add_findings), stop or asyncio.Event()
                )
            self.running = await health.left_running(server.endpoint)
        finally:
            if book is not None:
                await asyncio.to_thread(book.close)

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Samples the memory and handles of the server and its engine, and measures the load's duration."""
        watchers = []
        for name, processes in (("server", health.server_processes), ("engine", health.engine_processes)):
            if self.server_pid is not None:
                samples = self._server.setdefault(name, [])
                watch = health.watch(lambda: self.elapsed_s, partial(processes, self.server_pid), samples)
                watchers.append(asyncio.create_task(watch))
        try:
            yield
        finally:
            self.seconds = self.elapsed_s
            for watcher in watchers:
                watcher.cancel()

    def _add_turn(self, load_turn: LoadTurn) -> None:
        answer = load_turn.result.answer
        if answer is not None and answer.id not in ("", "None") and not self._ids.add(answer.id):
            load_turn.result.mismatches.append(TurnMismatch(SAME_ID, "an id of its own", answer.id))
        self.by_transport[load_turn.transport.name].add(load_turn)
        self.recorder.record_turn(load_turn)

    def _add_findings(self, conversation: int, transport: Transport, findings: list[Finding]) -> None:
        self.by_transport[transport.name].add_findings(findings)
        self.recorder.record_findings(conversation, transport, findings)

    def as_json(self) -> Json:
        """The figures of the load, for `--json` and `summary.json`."""
        total = self.total
        return {
            "scenario": self.scenario.title,
            "model": self.server.model,
            "vllm": self.server.vllm_version,
            "scripted": self._scripted,
            "concurrency": self.plan.at_once,
            "rate": self.plan.rate,
            "cancel": self.plan.cancel,
            "seed": self.plan.seed,
            "seconds": round(self.seconds, 3),
            "conversations": self.started,
            "cut_off": self.cut_off,
            "sent_again": self.sent_again,
            "late_s": round(self.late_s, 3),
            "client_cpu_ms_a_request": round(self.cpu_s * 1e3 / total.requests, 3)
            if total.requests
            else None,
            "left_running": self.running,
            "stopped": self.stopped,
            **self.clients.as_json(),
            "total": total.as_json(self.seconds),
            "by_transport": {name: tally.as_json(self.seconds) for name, tally in self.by_transport.items()},
            "drift": {
                name: drift.as_json()
                for name, samples in self.samples.items()
                if (drift := health.drift(samples)) is not None
            },
        }


class _Ids:
    """The ids of the latest answers, which must all be different."""

    def __init__(self) -> None:
        self._latest: OrderedDict[str, None] = OrderedDict()

    def add(self, identifier: str) -> bool:
        """Adds an id; returns False if an earlier answer had the same id."""
        if identifier in self._latest:
            return False
        self._latest[identifier] = None
        if len(self._latest) > IDS_REMEMBERED:
            self._latest.popitem(last=False)
        return True
