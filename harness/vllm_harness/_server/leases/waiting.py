"""The wait for a lease, which an interrupt ends; idle servers are released first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from vllm_harness._files.variables import number
from vllm_harness._machine.tasks import raise_if_interrupted
from vllm_harness._server.errors import MachineError
from vllm_harness._server.leases.claims import Claim, all_claims
from vllm_harness._terminal import notices

M = TypeVar("M")
WAIT_VARIABLE = "VLLM_HARNESS_LEASE_WAIT_S"
WAIT_S = 3600.0
POLL_S = 0.2
REPORT_EVERY_S = 10.0
UNLEASED_WAIT_S = 60.0
"""Seconds to wait for processes without a lease; servers of killed runs end sooner."""


class NotEnoughHardware(MachineError):
    """The machine does not have what a server needs, even without other leases."""


class LeaseTimeout(MachineError):
    """The machine has what a server needs, but its holders did not release it in time."""


class WaitCannotEnd(MachineError):
    """A wait would be a deadlock: the holders of what a server needs may wait for this process."""


@dataclass(frozen=True)
class Busy:
    """Why there is no lease now.

    Attributes:
        reason: the holders and what they hold.
        leased: whether leases prevent it, not only processes without a lease.
        endless: whether a wait could be a deadlock.
        figures: gives the state of the machine, for an error.
        wanted: the missing amount of each resource.
    """

    reason: str
    leased: bool
    endless: bool
    figures: Callable[[], str]
    wanted: dict[str, int] = field(default_factory=dict)


Attempt = Callable[[M, list[Claim]], Claim | Busy]
"""Makes a claim for all that is wanted, if the measured machine has it beside the other claims."""

Release = Callable[[], bool]
"""Ends an idle server of this process, or an unused fork server; False if there is none."""

_releases: list[Release] = []


@contextmanager
def reclaim_with(release: Release) -> Iterator[None]:
    """Makes each wait of this process call a function first, as long as the context lasts."""
    _releases.append(release)
    try:
        yield
    finally:
        _releases.remove(release)


def wait_for(measure: Callable[[], M], attempt: Attempt[M], wanted: str, wait_s: float | None) -> Claim:
    """Waits until a claim can be made. Releases idle servers first; shows the wait at once and every 10 s.

    It waits `wait_s` seconds for other leases, by default VLLM_HARNESS_LEASE_WAIT_S or else an hour, and at
    most 60 seconds for processes without a lease. `wanted` names what it waits for.

    Raises:
        WaitCannotEnd: the wait could be a deadlock.
        LeaseTimeout: the time is over.
    """
    if wait_s is None:
        wait_s = number(os.environ, WAIT_VARIABLE, WAIT_S)
    start = last_leased = time.monotonic()
    reported = -REPORT_EVERY_S
    wait = Claim("wait")
    try:
        while isinstance(outcome := _tried(attempt, measure(), wait), Busy):
            if any(release() for release in list(_releases)):
                continue
            if outcome.endless:
                raise WaitCannotEnd(
                    f"a wait for {wanted} would never end: {outcome.reason}; {outcome.figures()}",
                    hint="end a process named above, or run fewer servers at once",
                )
            now = time.monotonic()
            last_leased = now if outcome.leased else last_leased
            if now - start >= wait_s or now - last_leased >= UNLEASED_WAIT_S:
                raise LeaseTimeout(
                    f"no {wanted} within {now - start:.0f} s: {outcome.reason}; {outcome.figures()}",
                    hint="end a process named above"
                    + (", or wait longer: set VLLM_HARNESS_LEASE_WAIT_S" if outcome.leased else ""),
                )
            if now - start - reported >= REPORT_EVERY_S:
                reported = now - start
                notices.show(f"waiting for {wanted} ({reported:.0f} s): {outcome.reason}")
            raise_if_interrupted()
            time.sleep(POLL_S)
    except BaseException:
        wait.release()
        raise
    return outcome


def _tried(attempt: Attempt[M], machine: M, wait: Claim) -> Claim | Busy:
    """Attempts a claim; notes a wait in the file, which the claim replaces."""
    with all_claims() as claims:
        outcome = attempt(machine, claims)
        claims[:] = [claim for claim in claims if claim.id != wait.id]
        if isinstance(outcome, Claim):
            claims.append(outcome)
        elif not outcome.endless:
            claims.append(replace(wait, amounts=outcome.wanted))
    return outcome
