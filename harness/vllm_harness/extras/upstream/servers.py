"""The servers of a run: started when upstream's tests request them, and reused for identical requests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vllm_harness._configuration.model_entries import Frontend, Lane, ModelEntry
from vllm_harness._environments.spec import Environment
from vllm_harness._server.launch import plan_launch
from vllm_harness._server.leases.waiting import reclaim_with
from vllm_harness._server.remote import RemoteServer
from vllm_harness._server.reusable import identity
from vllm_harness.extras.upstream.adapters import zero_adapter
from vllm_harness.extras.upstream.stand_ins import (
    NoStandIn,
    flag_name,
    live_entry,
    load_stand_ins,
    split_flags,
    stand_in_entry,
)

_IDLE = 2
_HARNESS_CHOOSES = ("--host", "--port")


@dataclass
class UpstreamServers:
    """Starts servers for tests; the two most recently used idle servers stay up for identical requests.

    Attributes:
        environment: the vLLM environment in which the servers run.
        lane: the lane of the servers, `scripted` or `live`.
        frontend: the HTTP front end of the servers.
        dropped: for each requested flag that was omitted, the reason.
        started: the number of servers that were started.
    """

    environment: Environment
    lane: Lane = "scripted"
    frontend: Frontend = "python"
    dropped: dict[str, str] = field(default_factory=dict)
    started: int = 0
    _idle: dict[str, RemoteServer] = field(default_factory=dict)

    def take(
        self, model: str, args: Sequence[str], env: Mapping[str, str] | None, startup_s: float | None
    ) -> RemoteServer:
        """Returns a ready server for a test: an idle one if it is identical, else a new one.

        Args:
            model: the id of the requested model.
            args: the requested flags of `vllm serve`.
            env: the requested environment variables.
            startup_s: the time limit for the start in seconds; None for the entry's limit.

        Raises:
            NoStandIn: the scripted lane cannot serve the model.
            StartupError: the server does not start.
        """
        entry = self._entry(model, args)
        given = list(self._flags(args, entry))
        flags = [part for flag, values in given for part in (flag, *values)]
        served = next(
            (values for flag, values in given if flag_name(flag) == "--served-model-name"), (model,)
        )
        launch = plan_launch(
            entry,
            self.environment,
            lane=self.lane,
            args=(*flags, "--served-model-name", *served, entry.name),
            env={name: value for name, value in (env or {}).items() if os.environ.get(name) != value},
            frontend=self.frontend,
        )
        port = next((int(values[0]) for flag, values in split_flags(args) if flag == "--port"), None)
        server = self._idle.pop(identity(launch), None)
        if server is not None and server.alive() and port in (None, server.port):
            return server
        if server is not None:
            server.stop()
        server = RemoteServer(launch, port=port, startup_s=startup_s)
        with reclaim_with(self._end_idle):
            server.start()
        self.started += 1
        return server

    def give_back(self, server: RemoteServer) -> None:
        """Takes back a server from a test; if too many are idle, stops the one that was idle longest."""
        self._idle[identity(server.launch)] = server
        while len(self._idle) > _IDLE:
            self._end_idle()

    def stop(self) -> None:
        """Stops all idle servers."""
        while self._end_idle():
            pass

    def _end_idle(self) -> bool:
        """Stops the server that has been idle longest; returns False if no server is idle."""
        if not self._idle:
            return False
        self._idle.pop(next(iter(self._idle))).stop()
        return True

    def _entry(self, model: str, args: Sequence[str]) -> ModelEntry:
        if self.lane == "live":
            return live_entry(model)
        named = (values for flag, values in split_flags(args) if flag_name(flag) == "--tool-call-parser")
        return stand_in_entry(model, *next(named, ())[:1])

    def _flags(self, args: Sequence[str], entry: ModelEntry) -> list[tuple[str, tuple[str, ...]]]:
        known, kept = load_stand_ins(), []
        for flag, values in split_flags(args):
            name = flag_name(flag)
            if name in _HARNESS_CHOOSES:
                continue
            if self.lane == "scripted" and name in known.refused:
                raise NoStandIn(f"{flag}: {known.refused[name]}")
            if self.lane == "scripted" and name in known.dropped:
                self.dropped[name] = known.dropped[name]
            elif self.lane == "scripted" and name == "--lora-modules":
                assert entry.stand_in is not None
                adapter = zero_adapter(entry.stand_in.config)
                kept.append((flag, tuple(f"{value.partition('=')[0]}={adapter}" for value in values)))
            else:
                kept.append((flag, values))
        return kept
