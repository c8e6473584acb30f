"""The wait for a lease: shown, ended by an interrupt, and preceded by giving back what is idle."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from vllm_harness._files.variables import number
from vllm_harness._machine.tasks import raise_if_interrupted
from vllm_harness._server.errors import StartupError
from vllm_harness._server.leases.claims import Claim, all_claims
from vllm_harness._terminal import notices

M = TypeVar("M")
WAIT_VARIABLE = "VLLM_HARNESS_LEASE_WAIT_S"
WAIT_S = 3600.0
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


@dataclass(frozen=True)
class Busy:
    """Why there is no lease now.

    Attributes:
        reason: the holders and what they hold.
        leased: whether a lease stands in the way, not only processes without one.
        endless: whether a wait could be for processes that wait for this one.
        figures: gives the state of the machine, for an error.
        wanted: what is waited for, by resource.
    """

    reason: str
    leased: bool
    endless: bool
    figures: Callable[[], str]
    wanted: dict[str, int] = field(default_factory=dict)


Attempt = Callable[[M, list[Claim]], Claim | Busy]
"""Finds room for a claim on the measured machine, beside all others: for all that is wanted, or nothing."""

GiveBack = Callable[[], bool]
"""Ends an idle server of this process, or a fork server of nobody; False where there is none."""

_offers: list[GiveBack] = []


@contextmanager
def reclaim_with(give_back: GiveBack) -> Iterator[None]:
    """Has each wait of this process call `give_back` first, as long as the context lasts."""
    _offers.append(give_back)
    try:
        yield
    finally:
        _offers.remove(give_back)


def wait_for(measure: Callable[[], M], attempt: Attempt[M], wanted: str, wait_s: float | None) -> Claim:
    """Tries until there is room for a claim: for `wait_s` seconds, for 60 where no lease stands in the way.

    By default it is VLLM_HARNESS_LEASE_WAIT_S, else an hour. What is idle is given back first. The wait is
    shown at once and every 10 s.

    Raises WaitCannotEnd, LeaseTimeout, and what `measure` and `attempt` raise.
    """
    if wait_s is None:
        wait_s = number(os.environ, WAIT_VARIABLE, WAIT_S)
    start = last_leased = time.monotonic()
    reported = -REPORT_EVERY_S
    wait = Claim("wait")
    try:
        while isinstance(outcome := _tried(attempt, measure(), wait), Busy):
            if any(give_back() for give_back in list(_offers)):
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
    """The outcome of an attempt; the wait is noted as long as it lasts, and ends as the claim begins."""
    with all_claims() as claims:
        outcome = attempt(machine, claims)
        claims[:] = [claim for claim in claims if claim.id != wait.id]
        if isinstance(outcome, Claim):
            claims.append(outcome)
        elif not outcome.endless:
            claims.append(replace(wait, amounts=outcome.wanted))
    return outcome
