"""Manages the servers of a pytest run: makes, starts, shares and stops them, and reserves their memory.

A server outlives the test that started it. Before a test, while no server is in use, memory for all its
servers is reserved. `ready` and `use` start servers that are not running. After the test its servers are
idle, and can be stopped to release their memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pytest
from rich.console import Console

from vllm_harness._configuration.targets import Target
from vllm_harness._environments.planned import PlannedEnvironment
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import HarnessError
from vllm_harness._exchange.endpoint import API_PATHS, attach
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.recording import RECORD_ARGS
from vllm_harness._server.attached import AttachedServer, check_header
from vllm_harness._server.diagnosis import exception_of_engine, log_lines
from vllm_harness._server.errors import ServerDied
from vllm_harness._server.leases.allocation import reserved_for
from vllm_harness._server.leases.memory import others_have_waited_s
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._server.remote import RemoteServer
from vllm_harness._server.target_record import target_record
from vllm_harness._testing.progress import uncaptured
from vllm_harness._testing.results import TargetResult
from vllm_harness._testing.run_folder import WRITER
from vllm_harness._testing.skips import NOT_SERVED, skip

MOST_DEATHS = 5
"""A server is not restarted once it has died in this many tests in a row."""
SHARE_S = 20.0
"""How long another run may wait for memory before this run stops all its idle servers, even the target's."""
T = TypeVar("T")


@dataclass
class ServerManager:
    """The servers of one run, in one process.

    Attributes:
        config: pytest's configuration.
        planned: the environment of the servers that it starts; None if they are attached.
        result: returns the result of a target, given its id.
    """

    config: pytest.Config
    planned: PlannedEnvironment | None
    result: Callable[[str], TargetResult]
    _made: dict[str, Any] = field(default_factory=dict)  # or the errors that tests raise
    _started: list[RemoteServer] = field(default_factory=list)  # the least recently used first
    _used: set[RemoteServer] = field(default_factory=set)
    _lent: RemoteServer | None = None
    _refused: HarnessError | None = None
    _deaths: Counter[RemoteServer] = field(default_factory=Counter)

    @property
    def last_used(self) -> RemoteServer | None:
        """The server that was used last."""
        return self._started[-1] if self._started else None

    def server_of(self, target: Target) -> VllmServer:
        """Returns a target's server without starting it.

        Raises:
            HarnessError: it cannot be made; every test of the target raises the same error.
        """
        return self._once(target.id, partial(self._make, target))

    @contextmanager
    def reserved(self, target: Target, servers: int) -> Iterator[None]:
        """Reserves memory for a test's servers, or stores the error; after the test the servers are idle."""
        with ExitStack() as stack:
            try:
                server = self.server_of(target)
                if isinstance(server, RemoteServer) and not self._lent:
                    stack.enter_context(self._reserve(server, servers))
            except HarnessError as error:
                self._refused = error
            try:
                yield
            finally:
                self._refused = None
                self._used.clear()

    def check_reserved(self) -> None:
        """Raises the HarnessError that prevented reserving memory for the test, if there was one."""
        if self._refused:
            raise self._refused

    def ready(self, target: Target, needed: Collection[str]) -> VllmServer:
        """Returns a target's server, started if necessary; skips the test if a needed API is not served."""
        server, result = self.server_of(target), self.result(target.id)
        if isinstance(server, RemoteServer):
            log = server.log_path
            with uncaptured(self.config):
                result.restarts += self.use(server)
            if server.log_path != log:
                result.logs.append(str(server.log_path))
                result.server = target_record(server, target.id, self.config.stash.get(WRITER, None))
            if result.startup_s is None:
                result.startup_s, result.lacking = server.startup_seconds, server.endpoint.lacking()
        if missing := sorted(result.lacking & set(needed)):
            skip(NOT_SERVED, f"this server does not serve {', '.join(API_PATHS[name] for name in missing)}")
        return server

    def use(self, server: RemoteServer) -> bool:
        """Starts a server for the current test if necessary; returns whether the server had died.

        Raises:
            ServerDied: it died in too many tests in a row.
        """
        died = server in self._started and not server.alive()
        self._deaths[server] = self._deaths[server] + 1 if died else 0
        if self._deaths[server] >= MOST_DEATHS:
            raise ServerDied(
                f"the server died in {MOST_DEATHS} tests in a row, and will not be started again",
                hint="run one of these tests alone, and read its server's log",
                lines=exception_of_engine(server.log_path) or log_lines(server.log_path)[-5:],
                log_path=server.log_path,
            )
        if server in self._started:
            self._started.remove(server)
        if not server.alive():
            server.stop()
            server.start()
        self._started.append(server)
        self._used.add(server)
        return died

    def stop(self, server: RemoteServer) -> None:
        """Stops a server."""
        self._used.discard(server)
        if server in self._started:
            self._started.remove(server)
        server.stop()

    def end(self, target: Target) -> None:
        """Stops the server of a target whose tests are over, unless it is attached."""
        server = self._made.pop(target.id)
        if isinstance(server, RemoteServer):
            self.stop(server)

    def give_back(self) -> bool:
        """Stops the least recently used idle server; returns False if there is none."""
        for server in self._started:
            if server not in self._used and server is not self._lent and not server.keep:
                self.stop(server)
                return True
        return False

    @contextmanager
    def lent(self, target: RemoteServer, servers: int) -> Iterator[None]:
        """Lends the target's server to forks, keeps it running, and reserves memory for `servers` servers."""
        with self._reserve(target, servers):
            self._lent = target
            try:
                yield
            finally:
                self._lent = None

    @contextmanager
    def forked(self, target: RemoteServer, servers: int) -> Iterator[bool]:
        """In a fork: uses the lent server; yields whether the fork may start `servers` additional servers.

        It does not wait for their memory, as the parent process waits for the fork.
        """
        self._started, self._used, fits = [target], set(), False
        with ExitStack() as stack:
            with suppress(HarnessError):
                stack.enter_context(reserved_for(target.launch, servers, forked=target.forkable, wait_s=0.0))
                fits = True
            yield fits

    def _reserve(self, target: RemoteServer, servers: int) -> AbstractContextManager[None]:
        waited_s = others_have_waited_s()
        # if it kept idle servers, this run would get memory ahead of the runs that are waiting for it
        urgent = servers > 1 or waited_s >= SHARE_S
        while waited_s and (urgent or self._started != [target]) and self.give_back():
            pass
        if servers < 2 and target.alive():
            return nullcontext()
        return reserved_for(target.launch, servers, forked=target.forkable)

    def _make(self, target: Target) -> VllmServer:
        if target.lane == "attached":
            return self._attach(target)
        option, result = self.config.option, self.result(target.id)
        recorded = RECORD_ARGS if option.vllm_record_tokens or option.vllm_replay_tokens else ()
        server = RemoteServer(
            target.entry,
            lane=target.lane,
            vllm=self._once("environment", self._environment),
            frontend=option.vllm_frontend,
            args=(*option.vllm_server_arg, *recorded),
            cold_start=option.vllm_cold_start,
            keep=option.vllm_keep_servers,
            progress=ConsoleProgress(),
        )
        environment = server.environment
        result.server, result.environment = target_record(server, target.id), server.launch.describe()
        built = f"{environment.kind}, rust" if option.vllm_frontend == "rust" else environment.kind
        result.vllm = f"{environment.vllm_version} {environment.device} ({built})"
        return server

    def _attach(self, target: Target) -> AttachedServer:
        option, result = self.config.option, self.result(target.id)
        endpoint = attach(option.vllm_server_url, option.vllm_api_key_env, target.entry.limits.request_s)
        server = AttachedServer(
            endpoint,
            target.entry,
            model=option.vllm_server_model,
            books=attach(option.vllm_books_url, option.vllm_api_key_env) if option.vllm_books_url else None,
            version=option.vllm_server_version,
        )
        result.server, result.vllm = target_record(server, target.id), server.vllm_version
        result.environment, result.lacking = result.server.environment, endpoint.lacking()
        if server.books:
            check_header(server, [api for api in API_PATHS if api not in result.lacking])
        return server

    def _environment(self) -> Environment:
        assert self.planned is not None
        with uncaptured(self.config):
            show = Console(stderr=True, highlight=False).print
            return resolve(self.planned.spec, self.planned.device, create=True, progress=show)

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """Calls `make` once; if it fails, each call for this name raises the same HarnessError."""
        if name not in self._made:
            try:
                self._made[name] = make()
            except HarnessError as error:
                self._made[name] = error
        made: T | HarnessError = self._made[name]
        if isinstance(made, HarnessError):
            raise made
        return made
