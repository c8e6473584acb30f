"""Waiting for a lease: idle servers are ended first, and an interrupt ends the wait."""

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
    """The machine does not have the hardware that a server needs, even without other leases."""


class LeaseTimeout(MachineError):
    """The machine has the hardware that a server needs, but its holders did not release it in time."""


class WaitCannotEnd(MachineError):
    """A wait would be a deadlock: the holders of the needed hardware may be waiting for this process."""


@dataclass(frozen=True)
class Busy:
    """Why a lease cannot be made now.

    Attributes:
        reason: a description of the holders and what they hold.
        leased: whether other leases are a cause, and not only processes without a lease.
        endless: whether a wait could be a deadlock.
        figures: returns a description of the state of the machine, for an error message.
        wanted: the amount of each resource that this process waits for.
    """

    reason: str
    leased: bool
    endless: bool
    figures: Callable[[], str]
    wanted: dict[str, int] = field(default_factory=dict)


Attempt = Callable[[M, list[Claim]], Claim | Busy]
"""Makes a claim for everything wanted, if the measured machine has it beside the other claims."""

Release = Callable[[], bool]
"""Ends an idle server of this process, or an unused fork server; returns False if there is none."""

_releases: list[Release] = []


@contextmanager
def reclaim_with(release: Release) -> Iterator[None]:
    """While the context lasts, each wait of this process calls `release` first."""
    _releases.append(release)
    try:
        yield
    finally:
        _releases.remove(release)


def wait_for(measure: Callable[[], M], attempt: Attempt[M], wanted: str, wait_s: float | None) -> Claim:
    """Waits until a claim can be made. Ends idle servers first; reports the wait at once and every 10 s.

    It waits at most `wait_s` seconds for other leases (default: VLLM_HARNESS_LEASE_WAIT_S or an hour), and at
    most 60 seconds for processes without a lease. `wanted` describes what is waited for, in messages.

    Raises:
        WaitCannotEnd: the wait could be a deadlock.
        LeaseTimeout: the claim could not be made in time.
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
    """Attempts a claim and notes it in the claims file, or notes the wait for it if it fails."""
    with all_claims() as claims:
        outcome = attempt(machine, claims)
        claims[:] = [claim for claim in claims if claim.id != wait.id]
        if isinstance(outcome, Claim):
            claims.append(outcome)
        elif not outcome.endless:
            claims.append(replace(wait, amounts=outcome.wanted))
    return outcome
