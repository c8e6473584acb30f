"""The ledger's arithmetic: what fits, who comes first, and that nobody waits for ever."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_harness.server.leases.ledger import Account, Room, can_end, fits

A, B, C = "abc"


@pytest.mark.parametrize(
    ("accounts", "extra", "room", "expected"),
    [
        ([], 4, Room(4, 4), True),
        ([], 4.1, Room(4, 4), False),
        ([Account(B, leased=3)], 2, Room(4, 4), False),
        ([Account(B, leased=3, used=3)], 1, Room(4, 1), True),
        ([Account(B, leased=3, used=1)], 1, Room(4, 2.5), False),  # it will take two more
        ([Account(B, leased=1, reserved=3)], 2, Room(4, 4), False),
        ([], 2, Room(4, 1), False),  # somebody else has it
        ([Account(B, wanted=3, since=1)], 2, Room(4, 4), False),  # it came first
        ([Account(A, wanted=2, since=1), Account(B, wanted=3, since=2)], 2, Room(4, 4), True),
    ],
)
def test_fits(accounts: list[Account], extra: float, room: Room, expected: bool) -> None:
    assert fits(extra, A, accounts, room, queue=True) is expected


def test_who_holds_servers_in_use_does_not_queue() -> None:
    accounts = [Account(A, leased=1), Account(B, wanted=3, since=1)]
    assert not fits(2, A, accounts, Room(4, 4), queue=True)
    assert fits(2, A, accounts, Room(4, 4), queue=False)


@pytest.mark.parametrize(
    ("accounts", "expected"),
    [
        ([Account(A, leased=1), Account(B, leased=2)], True),  # B will finish
        ([Account(A, leased=2), Account(B, leased=2, wanted=1)], False),
        ([Account(A, leased=1), Account(B, leased=1, wanted=2), Account(C, leased=2, wanted=1)], False),
        ([Account(A, leased=1), Account(B, leased=1, wanted=2), Account(C, leased=2)], True),
        ([Account(A, leased=4)], False),  # it waits for itself
    ],
    ids=["others finish", "two of each other", "three of each other", "one after the other", "itself"],
)
def test_can_end(accounts: list[Account], expected: bool) -> None:
    assert can_end(1, A, accounts, 4) is expected


@given(seed=st.integers(0, 2**32), total=st.integers(1, 5), processes=st.integers(2, 5))
def test_somebody_can_always_go_on(seed: int, total: int, processes: int) -> None:
    """Processes that take servers one by one and refuse waits without an end never all stand still."""
    chance = random.Random(seed)
    accounts = {who: Account(who) for who in map(str, range(processes))}
    for now in range(1, 201):
        who = chance.choice([who for who, account in accounts.items() if not account.wanted])
        own = accounts[who]
        if chance.random() < 0.4:
            accounts[who] = replace(own, leased=max(0, own.leased - 1))
        elif fits(1, who, accounts.values(), Room(total, total), queue=not own.leased):
            accounts[who] = replace(own, leased=own.leased + 1)
        elif can_end(1, who, accounts.values(), total):
            accounts[who] = replace(own, wanted=1, since=now)
        for each in sorted(
            (account for account in accounts.values() if account.wanted), key=lambda account: account.since
        ):
            room = Room(total, total)
            if fits(1, each.who, accounts.values(), room, queue=not each.leased):
                accounts[each.who] = replace(each, leased=each.leased + 1, wanted=0)
        assert sum(account.leased for account in accounts.values()) <= total
        assert any(not account.wanted for account in accounts.values())
