"""GPU leases exclude each other and end with their process; impossible ones are refused at once."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.leases.conftest import Owner
from vllm_harness._errors import UsageError
from vllm_harness._machine.gpus import visible_gpus
from vllm_harness._scripted.in_server.vllm_harness_names import SERVER_ID
from vllm_harness._server.leases import claims, waiting
from vllm_harness._server.leases.gpus import SHARES, lease_gpus, used_before
from vllm_harness._server.leases.waiting import LeaseTimeout, NotEnoughHardware, WaitCannotEnd
from vllm_harness._terminal import notices

Table = Callable[..., None]
Start = Callable[[str, float], Owner]


def test_a_server_is_bound_by_index_in_bus_order(table: Table) -> None:
    table({}, {"used": 3}, {})
    held = lease_gpus(2, 16)
    assert held.env == {"CUDA_VISIBLE_DEVICES": "0,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    held.release()
    held.release()


@pytest.mark.parametrize(
    ("count", "gib", "message"),
    [(3, 16, "needs 3 x 16 GiB"), (1, 80, "GPU 0 (Test GPU, 24.0 GiB), GPU 1"), (2, 40, "24.0 GiB")],
)
def test_an_impossible_lease_is_refused_at_once(table: Table, count: int, gib: float, message: str) -> None:
    waits: list[str] = []
    with notices.shown_by(waits.append), pytest.raises(NotEnoughHardware) as refused:
        lease_gpus(count, gib)
    assert waits == []
    assert message in str(refused.value)


def test_a_machine_without_a_gpu(table: Table) -> None:
    table()
    with pytest.raises(NotEnoughHardware, match="this machine has no GPU"):
        lease_gpus(1, 4)


def test_the_nominal_memory_of_a_card_counts(table: Table) -> None:
    table({"gib": 79.6, "used": 0.5})
    lease_gpus(1, 80).release()


def test_two_processes_get_different_gpus(table: Table, owner: Start) -> None:
    owners = [owner("gpus", 1), owner("gpus", 1)]
    assert {each.has() for each in owners} == {"0", "1"}
    with pytest.raises(LeaseTimeout) as busy:
        lease_gpus(1, 16, wait_s=0)
    assert all(f"pid {each.pid}" in str(busy.value) for each in owners)


def test_a_wait_for_two_holds_none_and_is_shown(table: Table, owner: Start) -> None:
    first = owner("gpus", 1)
    first.has()
    both = owner("gpus", 2)
    pattern = rf"waiting for 2 GPUs with 16 GiB \(\d+ s\): GPU 0 is leased by pid {first.pid} \(-c"
    assert re.match(pattern, both.next_line())
    lease_gpus(1, 16).release()  # the process that waits for two GPUs holds none
    first.release()
    assert both.has() == "0,1"


def test_a_deadlock_is_refused(table: Table, owner: Start) -> None:
    first, second = owner("gpus", 1), owner("gpus", 1)
    assert {first.has(), second.has()} == {"0", "1"}
    first.request("gpus", 1)
    assert first.next_line().startswith("waiting for 1 GPU")
    second.request("gpus", 1)
    error = second.next_line()
    assert error.startswith("WaitCannotEnd a wait for 1 GPU with 16 GiB would never end: ")
    assert f"is leased by pid {first.pid}" in error
    second.release()
    assert first.has() in {"0", "1"}


def test_the_lease_of_a_killed_owner_ends(table: Table, owner: Start) -> None:
    first = owner("gpus", 2)
    first.has()
    first.kill()
    waits: list[str] = []
    with notices.shown_by(waits.append):
        lease_gpus(2, 16).release()
    assert waits == []


def test_children_do_not_inherit_a_lease(table: Table) -> None:
    held = lease_gpus(2, 16)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        held.release()
        lease_gpus(2, 16).release()
    finally:
        child.kill()
        child.wait()


def test_a_lease_waits_for_the_memory_of_a_killed_run(table: Table, owner: Start) -> None:
    table({"gib": 80})
    first = owner("gpus", 1)
    first.has()
    table({"gib": 80, "used": 12})  # the server of the killed process runs for a moment longer
    first.kill()
    lines: list[str] = []
    threading.Timer(0.3, lambda: table({"gib": 80})).start()
    with notices.shown_by(lines.append):
        held = lease_gpus(1, 16)
    assert f"GPU 0 still has memory allocated by pid {first.pid}" in lines[0]
    assert used_before(held) == {"GPU-0aaa": 0}


def test_memory_in_use_long_after_a_kill_is_ignored(
    table: Table, owner: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LEFTOVER_S", 0.1)
    table({"gib": 80})
    first = owner("gpus", 1)
    first.has()
    table({"gib": 80, "used": 12})
    first.kill()
    assert used_before(lease_gpus(1, 16)) == {"GPU-0aaa": 12 * 2**30}


def test_a_server_that_outlives_its_run_keeps_its_gpu(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "UNLEASED_WAIT_S", 0.1)
    environ = {**os.environ, SERVER_ID: "abc"}
    server = subprocess.Popen([sys.executable, "-c", "print(1); input()"], env=environ, stdin=subprocess.PIPE)
    try:
        table({"gib": 80, "used": 9, "processes": [{"pid": server.pid, "name": "vllm"}]})
        with pytest.raises(LeaseTimeout, match=f"pid {server.pid} .vllm., a server of the harness"):
            lease_gpus(1, 16)
    finally:
        server.kill()
        server.wait()


def test_the_wait_for_a_process_without_a_lease_is_short(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "UNLEASED_WAIT_S", 0.1)
    table({"used": 20, "processes": [{"pid": 2**22 + 1, "name": "blender", "used_bytes": 20 * 2**30}]})
    with pytest.raises(LeaseTimeout) as busy:
        lease_gpus(1, 16)
    assert f"GPU 0 is used by pid {2**22 + 1} (blender)" in str(busy.value)
    assert "20.0 of 24.0 GiB used by" in str(busy.value)


def test_only_visible_gpus_are_leased(table: Table) -> None:
    table({}, {}, {})
    held = lease_gpus(1, 16, visible=lambda: visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-2"}))
    assert held.env["CUDA_VISIBLE_DEVICES"] == "2"
    with pytest.raises(NotEnoughHardware, match="needs 2 x 16"):
        lease_gpus(2, 16, visible=lambda: visible_gpus({"CUDA_VISIBLE_DEVICES": "1"}))


@pytest.mark.parametrize(
    ("value", "indices"), [("1,0", [1, 0]), ("", []), ("-1", []), ("GPU-1aaa, 0", [1, 0])]
)
def test_visible_devices(table: Table, value: str, indices: list[int]) -> None:
    assert [gpu.index for gpu in visible_gpus({"CUDA_VISIBLE_DEVICES": value})] == indices


def test_a_visible_device_that_does_not_exist(table: Table) -> None:
    with pytest.raises(
        UsageError,
        match=r"GPU 7, which this machine does not have\n  try: use one of those that it has: 0 .GPU-0aaa",
    ):
        visible_gpus({"CUDA_VISIBLE_DEVICES": "7"})


def test_a_broken_table_is_named(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_HARNESS_GPUS_FILE", "/nowhere.json")
    with pytest.raises(UsageError, match=r"/nowhere.json, which is not a table of GPUs"):
        visible_gpus({})


def _take_turns(folder: Path) -> None:
    for _ in range(15):
        held = lease_gpus(1, 16)
        mine = folder / held.env["CUDA_VISIBLE_DEVICES"]
        mine.touch(exist_ok=False)  # this fails if another process has the same GPU
        time.sleep(0.002)
        mine.unlink()
        held.release()


def test_many_processes_take_turns(table: Table, tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_take_turns, args=(tmp_path,)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0] * 6


def test_a_gpu_is_shared(table: Table, owner: Start) -> None:
    table({})
    owners = [owner("share", 1), owner("share", 1)]
    assert [each.has() for each in owners] == ["0", "0"]
    assert used_before(lease_gpus(1, 4, shared=True)) == {}  # others use its memory as well


def test_a_whole_gpu_is_leased_once_all_shares_are_released(table: Table, owner: Start) -> None:
    table({})
    first, second = owner("share", 1), owner("share", 1)
    first.has()
    second.has()
    whole = owner("gpus", 1)
    line = whole.next_line()
    assert "GPU 0 is leased by pid " in line
    assert all(f"pid {each.pid} (" in line for each in (first, second))
    first.release()
    second.release()
    assert whole.has() == "0"
    share = owner("share", 1)
    pattern = rf"waiting for a share of 1 GPU with 4 GiB \(\d+ s\): GPU 0 is leased by pid {whole.pid} "
    assert re.match(pattern, share.next_line())
    whole.release()
    assert share.has() == "0"


def test_a_gpu_has_a_limited_number_of_shares(table: Table) -> None:
    table({}, {"used": 1})
    held = [lease_gpus(1, 4, shared=True) for _ in range(2 * SHARES)]
    assert [each.env["CUDA_VISIBLE_DEVICES"] for each in held] == [
        *["0"] * SHARES,
        *["1"] * SHARES,
    ]
    with pytest.raises(WaitCannotEnd, match=f"leased by pid {os.getpid()}"):
        lease_gpus(1, 4, shared=True)


def test_a_share_waits_for_memory_of_other_shares(table: Table, owner: Start) -> None:
    table({"gib": 8})
    first = owner("share", 1)
    first.has()
    table({"gib": 8, "used": 5})
    second = owner("share", 1)
    assert f"GPU 0 is leased by pid {first.pid} (" in second.next_line()
    table({"gib": 8})
    assert second.has() == "0"


def test_a_server_that_outlives_its_run_does_not_prevent_a_share(table: Table) -> None:
    environ = {**os.environ, SERVER_ID: "abc"}
    server = subprocess.Popen([sys.executable, "-c", "print(1); input()"], env=environ, stdin=subprocess.PIPE)
    try:
        table({"gib": 80, "used": 1, "processes": [{"pid": server.pid, "name": "vllm"}]})
        lease_gpus(1, 4, shared=True).release()
    finally:
        server.kill()
        server.wait()
