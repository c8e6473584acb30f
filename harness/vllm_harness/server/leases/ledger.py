"""The ledger of memory: what each process holds and awaits, and whether a need fits or can ever fit.

Pure arithmetic over accounts, one for each process (or task, see `claims.own_task`). All figures are GiB.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    """The memory that a process, or a task of it, holds and awaits.

    Attributes:
        who: identifies it; see `claims.ClaimHolder.who`.
        holder: its description, for display.
        leased: promised to its servers.
        used: taken by those servers once they were ready.
        reserved: reserved for the servers of its current test, including what it has leased.
        wanted: what it waits for in addition; 0 when it does not wait.
        since: when that wait began, seconds since the epoch.
    """

    who: str
    holder: str = ""
    leased: float = 0.0
    used: float = 0.0
    reserved: float = 0.0
    wanted: float = 0.0
    since: float = 0.0

    @property
    def held(self) -> float:
        """Memory that other processes cannot have."""
        return max(self.leased, self.reserved)

    @property
    def coming(self) -> float:
        """Memory that it holds and has not taken from the machine yet."""
        return max(0.0, self.held - self.used)


@dataclass(frozen=True)
class Room:
    """Memory that servers may have in total, and that the machine could give now (`available`)."""

    total: float
    available: float


SLACK = 1e-6  # GiB; sums of fractions


def fits(extra: float, who: str, accounts: Iterable[Account], room: Room, *, queue: bool) -> bool:
    """Whether a process may have `extra` more memory now.

    Args:
        extra: beyond what it holds.
        queue: whether processes that have waited for longer come first, as they must where this process holds
            nothing that it could not give back.
    """
    every = list(accounts)
    own = next((account for account in every if account.who == who), Account(who))
    first = [account for account in every if account.wanted and account.who != who and _before(account, own)]
    ahead = sum(account.wanted for account in first) if queue else 0.0
    held = sum(account.held for account in every)
    coming = sum(account.coming for account in every)
    return held + ahead + extra <= room.total + SLACK and coming + ahead + extra <= room.available + SLACK


def _before(other: Account, own: Account) -> bool:
    return not own.wanted or (other.since, other.who) < (own.since, own.who)


def can_end(extra: float, who: str, accounts: Iterable[Account], total: float) -> bool:
    """Whether a wait for `extra` more memory can end: whether all other processes could finish one by one.

    Processes that do not wait finish and give back what they hold; so does a waiting process that then gets
    what it wants. (The safety test of Dijkstra's banker's algorithm, with what is awaited now in place of a
    claim made ahead.)
    """
    waiting = {account.who: account for account in accounts}
    own = waiting.pop(who, Account(who))
    free = total - own.held - sum(account.held for account in waiting.values())
    while done := [account for account in waiting.values() if account.wanted <= max(0.0, free) + SLACK]:
        for account in done:
            free += waiting.pop(account.who).held
    return extra <= free + SLACK
