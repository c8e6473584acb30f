"""A lease: hardware that is promised to a server, and the wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from vllm_harness.machine.gpus import Gpu
from vllm_harness.server.errors import StartupError
from vllm_harness.server.leases.claims import Claim
from vllm_harness.server.leases.ending import go_on
from vllm_harness.server.leases.idle import give_back_idle_server
from vllm_harness.terminal import notices

POLL_S = 0.2
REPORT_EVERY_S = 10.0
UNLEASED_WAIT_S = 60.0
"""How long to wait for processes without a lease: servers of killed runs end well within it."""


class NotEnoughHardware(StartupError):
    """This machine does not have what a server needs, even when every lease is given back."""

    of_machine = True


class LeaseTimeout(StartupError):
    """The machine has what a server needs, but its holders did not give it back in time."""

    of_machine = True


class WaitCannotEnd(StartupError):
    """The holders of what a server needs wait for what this process holds: a deadlock."""

    of_machine = True


@dataclass
class Lease:
    """Hardware that is promised to a server.

    Attributes:
        env: variables that bind the server to its GPUs.
        gpus: the GPUs, as they were when they were leased.
    """

    claims: list[Claim]
    env: dict[str, str] = field(default_factory=dict)
    gpus: list[Gpu] = field(default_factory=list)

    def settle(self, **note: float) -> None:
        """Adds to the note what is known once the server is ready; see `leases.memory`."""
        for claim in self.claims:
            claim.write({**claim.note(), **note})

    def release(self) -> None:
        """Gives it back; calling it again does nothing."""
        for claim in self.claims:
            claim.release()


@dataclass(frozen=True)
class Busy:
    """Why there is no lease now.

    Attributes:
        reason: the holders and what they hold; unchanged as long as they are.
        leased: whether a lease stands in the way, not only processes without one.
        figures: gives the state of the machine, for an error.
        endless: whether the holders wait for this process.
    """

    reason: str
    leased: bool
    figures: Callable[[], str]
    endless: bool = False


def wait_for(attempt: Callable[[], Lease | Busy], wanted: str, wait_s: float) -> Lease:
    """Tries until there is a lease: for `wait_s` seconds, for 60 where no lease stands in the way.

    Idle servers of this process are given back first. The wait is shown at once and every 10 s.

    Raises WaitCannotEnd, LeaseTimeout, and what `attempt` raises.
    """
    start = last_leased = time.monotonic()
    reported = -REPORT_EVERY_S
    while isinstance(outcome := attempt(), Busy):
        if give_back_idle_server():
            continue
        if outcome.endless:
            raise WaitCannotEnd(
                f"a wait for {wanted} would never end: {outcome.reason}; {outcome.figures()}",
                hint="end a process named above, or run fewer servers at once",
            )
        waited = time.monotonic() - start
        last_leased = time.monotonic() if outcome.leased else last_leased
        if waited >= wait_s or time.monotonic() - last_leased >= UNLEASED_WAIT_S:
            raise LeaseTimeout(
                f"no {wanted} within {waited:.0f} s: {outcome.reason}; {outcome.figures()}",
                hint="end a process named above"
                + (", or wait longer: set VLLM_HARNESS_LEASE_WAIT_S" if outcome.leased else ""),
            )
        if waited - reported >= REPORT_EVERY_S:
            reported = waited
            notices.show(f"waiting for {wanted} ({waited:.0f} s): {outcome.reason}")
        go_on()
        time.sleep(POLL_S)
    return outcome
