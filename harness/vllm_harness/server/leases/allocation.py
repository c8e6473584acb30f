"""The GPUs or the memory that a server needs, leased to it alone until it has ended.

Whole GPUs on CUDA, of which stand-ins share one; a share of the memory on CPU. Leases are file locks in the
state folder, so they exclude each other between runs that share that folder (those of one user, or by
VLLM_HARNESS_STATE).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor, prod

from vllm_harness.configuration.model_entries import Frontend, Lane, ModelEntry
from vllm_harness.environments.spec import Environment
from vllm_harness.files.variables import number
from vllm_harness.machine.gpus import visible_gpus
from vllm_harness.machine.node_memory import node_memory
from vllm_harness.scripted.standin import STAND_IN_GPU_GIB
from vllm_harness.server.flags import flag_values
from vllm_harness.server.fork_server import MODELS_HELD, dismiss_unused, templates
from vllm_harness.server.launch import Launch
from vllm_harness.server.leases import memory as memory_leases
from vllm_harness.server.leases.gpus import lease_gpus
from vllm_harness.server.leases.idle import offered
from vllm_harness.server.leases.lease import Lease
from vllm_harness.server.leases.ledger import Room
from vllm_harness.server.leases.needs import FORK_SERVER_GIB, STAND_IN_GIB, Start, fork_servers_gib

WAIT_VARIABLE = "VLLM_HARNESS_LEASE_WAIT_S"
WAIT_S = 3600.0
BOUND_VARIABLE = "VLLM_HARNESS_MEMORY_GIB"
TEMPLATE_GIB = 0.3  # of the fork server, with one model's tokenizer
INTERPRETER_GIB = 1.0  # with vLLM's parsers, torch and tokenizers imported
PARALLEL = (
    ("-tp", "--tensor-parallel-size"),
    ("-pp", "--pipeline-parallel-size"),
    ("-dp", "--data-parallel-size"),
)


def lease_for(launch: Launch, *, forked: bool = False) -> Lease:
    """Leases what a launch needs; waits for other leases for up to VLLM_HARNESS_LEASE_WAIT_S (3600) seconds.

    Args:
        forked: whether it is to be started from the fork server.

    Raises:
        NotEnoughHardware, WaitCannotEnd, LeaseTimeout: see `lease_gpus` and `lease_memory`.
        UsageError: a variable is not a number.
    """
    wait_s = number(os.environ, WAIT_VARIABLE, WAIT_S)
    if launch.environment.device == "cuda" and workers_by_ray(launch.args):
        return Lease([])  # Ray gives them their GPUs, on whatever nodes
    if launch.environment.device == "cuda":
        shared = launch.lane == "scripted"
        gib = STAND_IN_GPU_GIB if shared else launch.entry.hardware.gpu_memory_gib
        visible = partial(visible_gpus, launch.environ())
        return lease_gpus(gpus_needed(launch.args), gib, shared=shared, visible=visible, wait_s=wait_s)
    start = Start(launch, forked)
    measure = partial(room, ready_gib=start.cache_gib, ahead=start.ahead_gib)
    with offered(dismiss_unused):
        return memory_leases.lease_memory(start.need_gib(), room=measure, wait_s=wait_s)


def reserve_for(launch: Launch, count: int, *, forked: bool, wait_s: float | None = None) -> Lease:
    """Reserves what servers of a launch need together, on CPU; on CUDA each server leases its own GPUs.

    To be called while no server of this process is in use. Raises as `lease_for`.

    Args:
        wait_s: seconds to wait for others in place of VLLM_HARNESS_LEASE_WAIT_S.
    """
    if launch.environment.device == "cuda" or not count:
        return Lease([])
    start = Start(launch, forked)
    if wait_s is None:
        wait_s = number(os.environ, WAIT_VARIABLE, WAIT_S)
    measure = partial(room, ahead=start.ahead_gib)
    with offered(dismiss_unused):
        return memory_leases.reserve_memory(count * start.need_gib(), room=measure, wait_s=wait_s)


def expected_needs(
    entry: ModelEntry, environment: Environment, lane: Lane, frontend: Frontend
) -> tuple[float, int]:
    """The memory (GiB) and the GPUs that a forked server of an entry takes, before its launch is planned.

    The memory is as measured on this machine, or a guess until then; on CUDA only that of the GPUs is leased.
    """
    flags = entry.flags(lane, environment.device, frontend)
    launch = Launch(entry, lane, environment, "", flags.args, flags.env, frontend)
    gpus = gpus_needed(flags.args) if environment.device == "cuda" else 0
    return Start(launch, forked=True).need_gib() + TEMPLATE_GIB, gpus


def room(used_gib: float, ready_gib: float = 0.0, ahead: Callable[[], float] = lambda: 0.0) -> Room:
    """The memory that CPU servers may have in total, and the part that is available now.

    It is the memory that the kernel would give, less that of the fork servers; VLLM_HARNESS_MEMORY_GIB bounds
    servers and fork servers together.

    Args:
        used_gib: memory that the servers with leases have taken.
        ready_gib: memory that must be free for vLLM to start: its KV cache, though it is taken later.
        ahead: what a fork server will take that does not run yet, in GiB.
    """
    coming = ahead()  # before those that run are measured, so that one that starts counts once at most
    total = _total_gib() - fork_servers_gib() - coming
    available = node_memory().available / 2**30
    if available < ready_gib:
        available = 0.0
    return Room(total, min(available - coming, total - used_gib))


def models_held() -> int:
    """How many models' templates of the fork server a process keeps: at most an eighth of the memory."""
    return max(1, min(MODELS_HELD, int(_total_gib() / 8 / TEMPLATE_GIB)))


def interpreters() -> int:
    """How many interpreters with vLLM a command runs side by side by default: two at most."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    return max(1, min(2, cores, int(_total_gib() / 2 / INTERPRETER_GIB)))


def _total_gib() -> float:
    total = node_memory().total / 2**30
    return min(total, number(os.environ, BOUND_VARIABLE, total))


@dataclass(frozen=True)
class Capacity:
    """How many stand-ins fit beside the other processes of this machine: in total, and in addition now."""

    total: int
    now: int
    each_gib: float


def capacity() -> Capacity:
    """How many forked stand-ins fit, by the same figures as their leases."""
    accounts = memory_leases.accounts()
    used, coming = sum(each.used for each in accounts), sum(each.coming for each in accounts)
    memory = room(used, ready_gib=1.0, ahead=lambda: 0.0 if templates() else FORK_SERVER_GIB)
    each = STAND_IN_GIB["forked"]
    return Capacity(
        total=max(0, floor(min(memory.total, memory.available + used) / each)),
        now=max(0, floor((memory.available - coming) / each)),
        each_gib=each,
    )


def gpus_needed(args: Sequence[str]) -> int:
    """How many GPUs a server with these flags runs on."""
    return prod(max(1, size) for size in flag_values(args, PARALLEL, int, 1))


def workers_by_ray(args: Sequence[str]) -> bool:
    """Whether a server with these flags has Ray run its workers."""
    return flag_values(args, [("--distributed-executor-backend",)], str, "") == ["ray"]
