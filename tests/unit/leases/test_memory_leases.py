"""Memory leases: promises never pass what there is, and nobody waits for somebody who waits for him."""

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
    """A machine with that much memory, GiB."""
    return lambda: Room(total, available)


def test_promises_add_up(owner: Start) -> None:
    first, second = owner("memory", 7), owner("memory", 7)
    first.has()
    second.has()
    with pytest.raises(LeaseTimeout) as busy:
        lease_memory(3, room=machine(), wait_s=0)
    assert f"7.0 GiB are leased by pid {first.pid}" in str(busy.value)
    assert f"pid {second.pid}" in str(busy.value)
    lease_memory(2, room=machine()).release()


def test_waiting_ends_when_one_gives_back(owner: Start) -> None:
    first = owner("memory", 12)
    first.has()
    second = owner("memory", 6)
    words = rf"waiting for 6\.0 GiB of memory \(\d+ s\): 12\.0 GiB are leased by pid {first.pid}"
    assert re.match(words, second.next_line())
    first.release()
    assert second.has() == "memory"


def test_a_wait_is_told_again_and_again(owner: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "REPORT_EVERY_S", 0.05)
    first = owner("memory", 12)
    first.has()
    lines: list[str] = []
    with notices.shown_by(lines.append), pytest.raises(LeaseTimeout):
        lease_memory(6, room=machine(), wait_s=0.5)
    assert len(lines) > 2
    assert all(f"pid {first.pid}" in words for words in lines)


def test_how_long_to_wait(owner: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    owner("memory", 12).has()
    monkeypatch.setenv("VLLM_HARNESS_LEASE_WAIT_S", "0.1")
    with pytest.raises(LeaseTimeout, match="within 0 s"):
        lease_memory(6, room=machine())
    monkeypatch.setenv("VLLM_HARNESS_LEASE_WAIT_S", "soon")
    with pytest.raises(UsageError, match="VLLM_HARNESS_LEASE_WAIT_S is 'soon', not a number"):
        lease_memory(6, room=machine())


def test_a_wait_in_a_circle_is_an_error_at_once(owner: Start) -> None:
    """Two hold two thirds and each wants another; the one that asks last is told who holds what."""
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


def test_who_has_got_it_waits_no_more(owner: Start) -> None:
    """Else another process takes a holder for one that waits for what it holds."""
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


def test_idle_servers_are_given_back_before_a_wait(owner: Start) -> None:
    idle = [lease_memory(6, room=machine()), lease_memory(6, room=machine())]

    def give_back() -> bool:
        if idle:
            idle.pop(0).release()
            return True
        return False

    with reclaim_with(give_back):
        held = lease_memory(6, room=machine(), wait_s=0)
    assert len(idle) == 1
    held.release()
    idle[0].release()


def test_servers_take_from_what_was_reserved(owner: Start) -> None:
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


def test_who_came_first_gets_it_first(owner: Start) -> None:
    """One that wants little does not slip past one that has waited for much."""
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


def test_one_that_is_killed_while_it_waits_holds_nobody_up(owner: Start) -> None:
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


def test_a_killed_owner_s_promise_is_gone_at_once(owner: Start, tmp_path: Path) -> None:
    first = owner("memory", 16)
    first.has()
    first.kill()
    waits: list[str] = []
    with notices.shown_by(waits.append):
        lease_memory(16, room=machine()).release()
    assert waits == []
    assert json.loads((tmp_path / "state" / "claims.json").read_text()) == []


def test_what_can_never_be_had_is_refused_at_once() -> None:
    with pytest.raises(NotEnoughHardware, match=r"needs 20.0 GiB of memory; there are 16.0 GiB"):
        lease_memory(20, room=machine())


def test_processes_without_lease_are_named_and_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "UNLEASED_WAIT_S", 0.05)
    with pytest.raises(
        LeaseTimeout, match=r"other processes use it; 5.0 of 16.0 GiB are free, .* pid \d+ \("
    ):
        lease_memory(6, room=machine(available=5))


def test_a_server_that_starts_has_not_taken_its_memory_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "UNLEASED_WAIT_S", 0.05)
    starting = lease_memory(3, room=machine(available=5))
    with pytest.raises(LeaseTimeout):
        lease_memory(3, room=machine(available=5))
    starting.settle(gib=3, used=3)
    lease_memory(3, room=machine(available=5)).release()
    starting.release()
