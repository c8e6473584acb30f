"""The servers of one run: those that the current test uses, and those that are idle and can be given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress

from vllm_harness.errors import HarnessError
from vllm_harness.server.diagnosis import last_words
from vllm_harness.server.errors import ServerDied
from vllm_harness.server.leases.allocation import reserved_for
from vllm_harness.server.leases.memory import others_have_waited_s
from vllm_harness.server.remote import RemoteServer

MOST_DEATHS = 5
"""In so many tests in a row a server may die before it is not started any more."""
SHARE_S = 20.0
"""How long another run may wait for memory before this one gives back its idle servers, the target's too."""


class Pool:
    """Servers that outlive a test: started when a test uses them, given back where memory is wanted."""

    def __init__(self) -> None:
        self._started: list[RemoteServer] = []  # the least recently used first
        self._used: set[RemoteServer] = set()
        self._lent: RemoteServer | None = None
        self._deaths: Counter[RemoteServer] = Counter()

    @property
    def last_used(self) -> RemoteServer | None:
        """The server that was used last."""
        return self._started[-1] if self._started else None

    @contextmanager
    def reserved(self, target: RemoteServer, servers: int) -> Iterator[None]:
        """For one test: sets aside what its servers need, while none is in use; they are idle afterwards."""
        with nullcontext() if self._lent else self._reserved(target, servers):
            try:
                yield
            finally:
                self._used.clear()

    @contextmanager
    def lent(self, target: RemoteServer, servers: int) -> Iterator[None]:
        """While others use the target's server: it is not given back, and so much memory is set aside."""
        with self._reserved(target, servers):
            self._lent = target
            try:
                yield
            finally:
                self._lent = None

    @contextmanager
    def forked(self, target: RemoteServer, servers: int) -> Iterator[bool]:
        """In a fork, which uses the target's server as long as it is lent: whether it may start so many more.

        It never waits for their memory: the process that it was forked from waits for it.
        """
        self._started, self._used, fit = [target], set(), False
        with ExitStack() as stack:
            with suppress(HarnessError):
                stack.enter_context(reserved_for(target.launch, servers, forked=target.forkable, wait_s=0.0))
                fit = True
            yield fit

    def use(self, server: RemoteServer) -> bool:
        """Has a server ready for the current test; whether it was started anew after it had died.

        Raises:
            ServerDied: it died in too many tests in a row.
        """
        died = server in self._started and not server.alive()
        self._deaths[server] = self._deaths[server] + 1 if died else 0
        if self._deaths[server] >= MOST_DEATHS:
            raise ServerDied(
                f"the server died in {MOST_DEATHS} tests in a row, and is not started again",
                hint="run one of these tests alone, and read how its server ended",
                lines=last_words(server.log_path),
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
        """Ends a server that no test will use any more."""
        self._used.discard(server)
        if server in self._started:
            self._started.remove(server)
        server.stop()

    def give_back(self) -> bool:
        """Ends the idle server that was used longest ago; False where there is none."""
        for server in self._started:
            if server not in self._used and server is not self._lent and not server.keep:
                self.stop(server)
                return True
        return False

    def _reserved(self, target: RemoteServer, servers: int) -> AbstractContextManager[None]:
        waited_s = others_have_waited_s()
        urgent = servers > 1 or waited_s >= SHARE_S  # who holds servers would not queue behind the others
        while waited_s and (urgent or self._started != [target]) and self.give_back():
            pass
        if servers < 2 and target.alive():
            return nullcontext()
        return reserved_for(target.launch, servers, forked=target.forkable)
