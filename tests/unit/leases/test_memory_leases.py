"""Memory leases: promises never pass what there is, and a dead holder's promise is gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.server import lease
from harness.server.lease import LeaseTimeout, NotEnoughHardware
from harness.server.memory_leases import lease_memory
from harness.server.node_memory import NodeMemory
from tests.unit.leases.conftest import GIB, Owner

Start = Callable[[str, float], Owner]


def machine(total: float = 16, available: float = 16) -> Callable[[], NodeMemory]:
    """A machine with that much memory, GiB."""
    return lambda: NodeMemory(int(total * GIB), int(available * GIB))


def test_promises_add_up(owner: Start) -> None:
    first, second = owner("memory", 7), owner("memory", 7)
    first.has()
    second.has()
    with pytest.raises(LeaseTimeout) as busy:
        lease_memory(3, memory=machine(), wait_s=0)
    assert f"7 GiB are leased by pid {first.pid}" in str(busy.value)
    assert f"pid {second.pid}" in str(busy.value)
    lease_memory(2, memory=machine()).release()


def test_waiting_ends_when_one_gives_back(owner: Start) -> None:
    first = owner("memory", 12)
    first.has()
    second = owner("memory", 6)
    assert second.says().startswith(f"waiting for 6 GiB of memory: 12 GiB are leased by pid {first.pid}")
    first.release()
    assert second.has() == "memory"


def test_a_killed_owner_s_promise_is_gone_at_once(owner: Start, tmp_path: Path) -> None:
    first = owner("memory", 16)
    first.has()
    start = time.monotonic()
    first.kill()
    held = lease_memory(16, memory=machine())
    assert time.monotonic() - start < 1
    held.release()
    lease_memory(1, memory=machine()).release()
    assert len(list((tmp_path / "state" / "memory").glob("*.json"))) == 0
    assert len(list((tmp_path / "state" / "memory").glob("*.lock"))) <= 1


def test_what_can_never_be_had_is_refused_at_once() -> None:
    with pytest.raises(NotEnoughHardware, match=r"asked for 20 GiB of memory; there are 16.0 GiB"):
        lease_memory(20, memory=machine())


def test_strangers_are_named_and_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "STRANGER_WAIT_S", 0.05)
    with pytest.raises(
        LeaseTimeout, match=r"other processes use it; 5.0 of 16.0 GiB are free, .* pid \d+ \("
    ):
        lease_memory(6, memory=machine(available=5))


def test_a_server_that_starts_has_not_taken_its_memory_yet() -> None:
    starting = lease_memory(3, memory=machine(available=5))
    with pytest.raises(LeaseTimeout):
        lease_memory(3, memory=machine(available=5), wait_s=0)
    starting.settle()
    lease_memory(3, memory=machine(available=5)).release()
    starting.release()
