"""Memory leases never exceed the machine's memory, and waits for them never deadlock."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.leases.conftest import GIB, Owner
from vllm_harness._errors import UsageError
from vllm_harness._server.leases import waiting
from vllm_harness._server.leases.claims import MEMORY, all_claims, held_by, this_process
from vllm_harness._server.leases.memory import Room, lease_memory, others_have_waited_s
from vllm_harness._server.leases.waiting import LeaseTimeout, NotEnoughHardware, WaitCannotEnd, reclaim_with
from vllm_harness._terminal import notices

Start = Callable[[str, float], Owner]


def machine(total: float = 16, available: float = 16) -> Callable[[], Room]:
    """A function that measures a machine with the given memory, GiB."""
    return lambda: Room(total, available)


def test_leases_add_up(owner: Start) -> None:
    first, second = owner("memory", 7), owner("memory", 7)
    first.has()
    second.has()
    with pytest.raises(LeaseTimeout) as busy:
        lease_memory(3, room=machine(), wait_s=0)
    assert f"7.0 GiB are leased by pid {first.pid}" in str(busy.value)
    assert f"pid {second.pid}" in str(busy.value)
    lease_memory(2, room=machine()).release()


def test_a_wait_ends_when_memory_is_released(owner: Start) -> None:
    first = owner("memory", 12)
    first.has()
    second = owner("memory", 6)
    pattern = rf"waiting for 6\.0 GiB of memory \(\d+ s\): 12\.0 GiB are leased by pid {first.pid}"
    assert re.match(pattern, second.next_line())
    first.release()
    assert second.has() == "memory"


def test_a_wait_is_shown_repeatedly(owner: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "REPORT_EVERY_S", 0.05)
    first = owner("memory", 12)
    first.has()
    lines: list[str] = []
    with notices.shown_by(lines.append), pytest.raises(LeaseTimeout):
        lease_memory(6, room=machine(), wait_s=0.5)
    assert len(lines) > 2
    assert all(f"pid {first.pid}" in line for line in lines)


def test_a_variable_limits_the_wait(owner: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    owner("memory", 12).has()
    monkeypatch.setenv("VLLM_HARNESS_LEASE_WAIT_S", "0.1")
    with pytest.raises(LeaseTimeout, match="within 0 s"):
        lease_memory(6, room=machine())
    monkeypatch.setenv("VLLM_HARNESS_LEASE_WAIT_S", "soon")
    with pytest.raises(UsageError, match="VLLM_HARNESS_LEASE_WAIT_S is 'soon', not a number"):
        lease_memory(6, room=machine())


def test_a_deadlock_is_an_error_at_once(owner: Start) -> None:
    """Two processes hold most of the memory and want more; the second's error names the holders."""
    first, second = owner("memory", 6), owner("memory", 6)
    first.has()
    second.has()
    first.request("memory", 6)
    assert first.next_line().startswith("waiting for 6.0 GiB")
    second.request("memory", 6)
    error = second.next_line()
    assert error.startswith("WaitCannotEnd a wait for 6.0 GiB of memory would never end: ")
    assert f"6.0 GiB are leased by pid {first.pid}" in error
    assert "and waits for 6.0 GiB" in error
    assert f"pid {second.pid} (-c, this process)" in error
    second.release()
    assert first.has() == "memory"


def test_a_lease_ends_the_wait(owner: Start) -> None:
    """If the wait stayed in the claims file, another process would see a deadlock."""
    first = owner("memory", 12)
    first.has()
    threading.Timer(0.3, first.release).start()
    lease_memory(6, room=machine(), wait_s=30)
    with all_claims() as claims:
        assert [claim.kind for claim in claims] == ["lease"]


def test_a_process_does_not_wait_for_itself() -> None:
    held = lease_memory(12, room=machine())
    with pytest.raises(WaitCannotEnd, match="this process"):
        lease_memory(6, room=machine())
    held.release()


def test_idle_servers_are_released_before_a_wait(owner: Start) -> None:
    idle = [lease_memory(6, room=machine()), lease_memory(6, room=machine())]

    def release_one() -> bool:
        if idle:
            idle.pop(0).release()
            return True
        return False

    with reclaim_with(release_one):
        held = lease_memory(6, room=machine(), wait_s=0)
    assert len(idle) == 1
    held.release()
    idle[0].release()


def test_a_reservation_includes_leases(owner: Start) -> None:
    reserved = lease_memory(12, room=machine(), kind="reservation")
    other = owner("memory", 6)
    assert other.next_line().startswith("waiting for 6.0 GiB")
    leased = [lease_memory(6, room=machine()), lease_memory(6, room=machine())]
    with all_claims() as claims:
        assert held_by(claims, [MEMORY]) == {this_process(): 12 * GIB}
    reserved.release()
    leased[0].release()
    assert other.has() == "memory"
    leased[1].release()


def test_waits_are_served_in_order(owner: Start) -> None:
    """A process that wants little does not overtake one that has been waiting for much."""
    held = lease_memory(12, room=machine())
    much = owner("reserve", 10)
    assert much.next_line().startswith("waiting for 10.0 GiB")
    assert others_have_waited_s() > 0
    little = owner("reserve", 4)
    assert re.search(rf"pid {much.pid} \(.*has waited for 10\.0 GiB for longer", little.next_line())
    held.release()
    assert much.has() == "reserve"
    assert little.has() == "reserve"
    assert others_have_waited_s() == 0


def test_a_process_that_is_killed_while_it_waits_delays_no_other(owner: Start) -> None:
    held = lease_memory(12, room=machine())
    much = owner("reserve", 10)
    assert much.next_line().startswith("waiting for 10.0 GiB")
    much.kill()
    lease_memory(4, room=machine(), wait_s=0).release()
    held.release()


def test_an_interrupt_ends_a_wait(owner: Start) -> None:
    owner("memory", 12).has()
    threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        lease_memory(6, room=machine())
    assert others_have_waited_s() == 0
    with all_claims() as claims:
        assert [claim.kind for claim in claims] == ["lease"]


def test_the_lease_of_a_killed_owner_ends_at_once(owner: Start, tmp_path: Path) -> None:
    first = owner("memory", 16)
    first.has()
    first.kill()
    waits: list[str] = []
    with notices.shown_by(waits.append):
        lease_memory(16, room=machine()).release()
    assert waits == []
    assert json.loads((tmp_path / "state" / "claims.json").read_text()) == []


def test_an_impossible_lease_is_refused_at_once() -> None:
    with pytest.raises(NotEnoughHardware, match=r"needs 20.0 GiB of memory; there are 16.0 GiB"):
        lease_memory(20, room=machine())


def test_the_wait_for_processes_without_a_lease_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "UNLEASED_WAIT_S", 0.05)
    with pytest.raises(
        LeaseTimeout, match=r"other processes use it; 5.0 of 16.0 GiB are free, .* pid \d+ \("
    ):
        lease_memory(6, room=machine(available=5))


def test_a_starting_server_has_not_taken_its_memory_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "UNLEASED_WAIT_S", 0.05)
    starting = lease_memory(3, room=machine(available=5))
    with pytest.raises(LeaseTimeout):
        lease_memory(3, room=machine(available=5))
    starting.settle(gib=3, used=3)
    lease_memory(3, room=machine(available=5)).release()
    starting.release()
