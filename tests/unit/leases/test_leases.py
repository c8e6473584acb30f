"""Which leases a launch needs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.leases.conftest import GIB
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness._machine.node_memory import NodeMemory
from vllm_harness._server.fork_server import FIRST, TemplateInfo, socket_of
from vllm_harness._server.launch import Launch
from vllm_harness._server.leases import allocation as leases
from vllm_harness._server.leases.allocation import (
    FORK_SERVER_GIB,
    MARGIN,
    SPARE_GIB,
    STAND_IN_GIB,
    Start,
    gpus_needed,
    lease_for,
    workers_by_ray,
)
from vllm_harness._server.leases.memory import Room


@pytest.mark.parametrize(
    ("args", "count"),
    [
        ((), 1),
        (("--tensor-parallel-size", "2", "--max-model-len", "-1"), 2),
        (("--tensor-parallel-size", "2", "--tensor-parallel-size=4"), 4),
        (("--tensor_parallel_size=2", "-pp", "3", "--enforce-eager"), 6),
        (("-dp", "2", "-tp", "2"), 4),
        (("-tp", "two"), 1),
    ],
)
def test_gpus_needed(args: tuple[str, ...], count: int) -> None:
    assert gpus_needed(args) == count


@pytest.mark.parametrize(
    ("args", "by_ray"),
    [
        ((), False),
        (("--distributed-executor-backend", "ray"), True),
        (("--distributed_executor_backend=ray",), True),
        (("--distributed-executor-backend=ray", "--distributed-executor-backend=mp"), False),
        (("--distributed-executor-backend",), False),
    ],
)
def test_workers_by_ray(args: tuple[str, ...], by_ray: bool) -> None:
    assert workers_by_ray(args) is by_ray


@pytest.fixture
def leased(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of all calls that lease GPUs or memory."""
    calls: list[Any] = []
    monkeypatch.setattr(leases, "lease_gpus", lambda *needs, **options: calls.append((*needs, options)))
    monkeypatch.setattr(leases, "lease_memory", lambda gib, **options: calls.append((gib, options)))
    return calls


def launch(model: str, lane: Any, device: Any, **fields: Any) -> Launch:
    """Makes a launch for a model entry, without fetching anything."""
    environment = Environment("installed", Path("python"), "3.12", "0.32.0", device, None)
    entry = load_models().get(model)
    args = entry.flags(lane, device).args
    planned = Launch(entry, lane, environment, "model", args, {})
    return dataclasses.replace(planned, **fields)


def test_a_live_server_on_cuda(leased: list[Any]) -> None:
    lease_for(launch("deepseek-v3.2", "live", "cuda"))
    assert leased[0][:2] == (8, 141)
    assert not leased[0][2]["shared"]


def test_a_stand_in_on_cuda(leased: list[Any]) -> None:
    lease_for(launch("gpt-oss", "scripted", "cuda"))
    assert leased[0][:2] == (1, leases.STAND_IN_GPU_GIB)
    assert leased[0][2]["shared"]


@pytest.mark.parametrize(
    ("model", "lane", "forked", "gib"),
    [
        ("smollm2-135m", "live", False, 3.5),
        # memory that the server shares with the fork server counts for the fork server
        ("smollm2-135m", "live", True, 3.5 - FORK_SERVER_GIB),
        ("qwen3", "scripted", False, STAND_IN_GIB["cold"]),
        ("qwen3", "scripted", True, STAND_IN_GIB["forked"]),
    ],
)
def test_memory_on_cpu_grows_with_the_kv_cache(
    leased: list[Any], model: str, lane: str, forked: bool, gib: float
) -> None:
    lease_for(launch(model, lane, "cpu"), forked=forked)
    lease_for(launch(model, lane, "cpu", env={"VLLM_CPU_KVCACHE_SPACE": "4"}), forked=forked)
    assert [call[0] for call in leased] == pytest.approx([gib, gib + 3])


def test_a_lease_uses_the_largest_measurement(leased: list[Any]) -> None:
    planned = launch("qwen3", "scripted", "cpu")
    for gib in (0.4, 1.0, 0.3):
        Start(planned, forked=False).learn(gib)
    lease_for(planned)
    assert leased[0][0] == 1.0 * MARGIN + SPARE_GIB
    others = [Start(planned, forked=True), Start(launch("qwen3", "live", "cpu"), forked=False)]
    assert all(other.key != Start(planned, forked=False).key for other in others)


def test_servers_that_run_a_file_first_are_measured_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a server imports vLLM's modules again, and uses more memory than others."""
    plain = Start(launch("qwen3", "scripted", "cpu"), forked=True)
    plain.learn(0.3)
    monkeypatch.setenv(FIRST, "/first.py")
    plain.learn(1.2)
    monkeypatch.delenv(FIRST)
    assert plain.need_gib() == pytest.approx(0.3 * MARGIN + SPARE_GIB)


def test_a_variable_limits_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "node_memory", lambda: NodeMemory(16 * GIB, 12 * GIB))
    assert leases.room() == Room(16, 12)
    assert (leases.models_held(), leases.interpreters()) == (6, min(2, len(os.sched_getaffinity(0))))
    monkeypatch.setenv("VLLM_HARNESS_MEMORY_GIB", "6")
    assert leases.room() == Room(6, 6)
    assert leases.room(ready_gib=13) == Room(6, 0)  # vLLM would refuse to start
    assert leases.models_held() == 2
    monkeypatch.setenv("VLLM_HARNESS_MEMORY_GIB", "2")
    assert (leases.models_held(), leases.interpreters()) == (1, 1)
    monkeypatch.setenv("VLLM_HARNESS_MEMORY_GIB", "much")
    with pytest.raises(UsageError, match="VLLM_HARNESS_MEMORY_GIB is 'much', not a number"):
        leases.room()


def test_a_fork_server_that_starts_during_a_wait_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "node_memory", lambda: NodeMemory(6 * GIB, 6 * GIB))
    start = Start(launch("qwen3", "scripted", "cpu"), forked=True)
    measure = partial(leases.room, ahead=start.ahead_gib)
    assert measure() == Room(6 - FORK_SERVER_GIB, 6 - FORK_SERVER_GIB)
    described = start.launch.environment.describe()
    other, template = (
        TemplateInfo(socket_of(each, each.environ()), os.getpid(), described)
        for each in (launch("qwen3", "scripted", "cpu", env={"LANG": "C"}), start.launch)
    )
    monkeypatch.setattr(leases, "fork_servers_gib", lambda: 0.8)
    monkeypatch.setattr(leases, "templates", lambda: [other])
    assert measure() == Room(5.2 - FORK_SERVER_GIB, 5.2 - FORK_SERVER_GIB)
    monkeypatch.setattr(leases, "templates", lambda: [other, template])
    assert measure() == Room(5.2, 5.2)


def test_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "node_memory", lambda: NodeMemory(6 * GIB, 5 * GIB))
    assert leases.capacity() == (int((5 - FORK_SERVER_GIB) // STAND_IN_GIB["forked"]),) * 2


def test_a_cache_size_that_is_not_a_number(leased: list[Any]) -> None:
    with pytest.raises(UsageError, match="VLLM_CPU_KVCACHE_SPACE is 'some', not a number"):
        lease_for(launch("qwen3", "scripted", "cpu", env={"VLLM_CPU_KVCACHE_SPACE": "some"}))


def test_only_the_visible_devices_of_the_caller_are_leased(
    table: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    table({}, {}, {})
    held = lease_for(launch("gpt-oss", "live", "cuda", env={"CUDA_VISIBLE_DEVICES": "2"}))
    assert held is not None
    assert held.env["CUDA_VISIBLE_DEVICES"] == "2"
    held.release()
