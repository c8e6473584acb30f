"""A lease: something of the machine that is promised to one server, and the wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.gpus import Gpu
from harness.server.claims import Claim
from harness.server.errors import StartupError

POLL_S = 0.5
STRANGER_WAIT_S = 60.0
"""How long to wait where no lease stands in the way: servers of killed runs end well within it."""

Waiting = Callable[[str, float], None]
"""Told several times a second what a lease waits for, and for how many seconds it has waited."""


class NotEnoughHardware(StartupError):
    """This machine does not have what a server needs, whoever gives something back."""


class LeaseTimeout(StartupError):
    """The machine has what a server needs, but others did not give it back in time."""


@dataclass
class Lease:
    """What is promised to one server.

    Attributes:
        env: variables that bind the server to it.
        gpus: the GPUs, as they were when they were leased.
    """

    claims: list[Claim]
    env: dict[str, str] = field(default_factory=dict)
    gpus: list[Gpu] = field(default_factory=list)

    def settle(self) -> None:
        """To be called once the server is ready: what it uses shows in the machine's own figures now."""
        for claim in self.claims:
            claim.write({**claim.note(), "starting": False})

    def release(self) -> None:
        """Gives it back; calling it again does nothing."""
        for claim in self.claims:
            claim.release()


@dataclass(frozen=True)
class Busy:
    """Why there is no lease now.

    Attributes:
        reason: who holds what; the same words as long as nothing changes.
        leased: whether a lease stands in the way, not only strangers.
        figures: the state of the machine, for an error.
    """

    reason: str
    leased: bool
    figures: Callable[[], str]


def wait_for(attempt: Callable[[], Lease | Busy], wanted: str, waiting: Waiting, wait_s: float) -> Lease:
    """Tries until there is a lease: `wait_s` seconds, and 60 where only strangers stand in the way.

    Raises LeaseTimeout, and what `attempt` raises.
    """
    start = last_leased = time.monotonic()
    while isinstance(outcome := attempt(), Busy):
        now = time.monotonic()
        last_leased = now if outcome.leased else last_leased
        if now - start >= wait_s or now - last_leased >= STRANGER_WAIT_S:
            raise LeaseTimeout(
                f"no {wanted} within {now - start:.0f} s: {outcome.reason}; {outcome.figures()}",
                hint="end what is named there"
                + (", or wait longer: set VLLM_HARNESS_LEASE_WAIT_S" if outcome.leased else ""),
            )
        waiting(f"waiting for {wanted}: {outcome.reason}", now - start)
        time.sleep(POLL_S)
    return outcome


def unheard(text: str, waited_s: float) -> None:
    """The `Waiting` of callers who show nothing."""
