"""Leases of the hardware that a server needs: GPUs on CUDA, memory on CPU.

A live server leases whole GPUs; stand-ins share one. The amount of memory on CPU is what an earlier such
server used, or a guess if none was measured. Runs that share the state folder respect each other's leases.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from math import floor, prod
from pathlib import Path

import psutil

from vllm_harness._files.paths import state_dir
from vllm_harness._files.variables import number
from vllm_harness._machine.gpus import visible_gpus
from vllm_harness._machine.node_memory import node_memory
from vllm_harness._scripted.standin import STAND_IN_GPU_GIB
from vllm_harness._server.flags import flag_values
from vllm_harness._server.fork_server import FIRST, MODELS_HELD, socket_of, templates
from vllm_harness._server.launch import Launch
from vllm_harness._server.leases.claims import Claim, all_claims, locked_json
from vllm_harness._server.leases.gpus import lease_gpus
from vllm_harness._server.leases.memory import Room, lease_memory, used_and_coming
from vllm_harness._server.process_tree import tree_pids
from vllm_harness._server.records import running

BOUND_VARIABLE = "VLLM_HARNESS_MEMORY_GIB"
STAND_IN_GIB = {"forked": 0.7, "cold": 2.2}
"""Guesses (GiB) for stand-ins never measured; on vLLM 0.32.0, gpt-oss and Qwen 3 use 0.3 and 1.9 GiB."""
FORK_SERVER_GIB = 1.1
"""A guess (GiB) for a fork server with a model's tokenizer, before it can be measured."""
TEMPLATE_GIB = 0.3  # a fork server's template with one model's tokenizer
INTERPRETER_GIB = 1.0  # an interpreter that has imported vLLM's parsers, torch and tokenizers
MARGIN, SPARE_GIB = 1.25, 0.1
"""The factor and the amount (GiB) by which a server may exceed its measured memory."""
MEASURED_FOR_S = 20.0
PARALLEL = (
    ("-tp", "--tensor-parallel-size"),
    ("-pp", "--pipeline-parallel-size"),
    ("-dp", "--data-parallel-size"),
)


@dataclass(frozen=True)
class Start:
    """A launch on CPU and how it starts; a forked server shares most of its memory with the fork server."""

    launch: Launch
    forked: bool

    @property
    def cache_gib(self) -> float:
        """The size of the KV cache (GiB); vLLM requires it to be free at the start, but uses it later."""
        return number(self.launch.environ(), "VLLM_CPU_KVCACHE_SPACE", 1.0)

    @property
    def kind(self) -> str:
        """How the server starts: `forked` or `cold`."""
        return "forked" if self.forked else "cold"

    @property
    def key(self) -> str:
        """The key under which its memory use is stored; servers with the same key use the same amount.

        A server that runs a Python file first, as for a mutant, has another key: it serves few tests, so its
        KV cache fills less.
        """
        launch, first = self.launch, " first" if os.environ.get(FIRST) else ""
        kind = f"{self.kind} {launch.environment.vllm_version} {launch.frontend} {self.cache_gib:g}{first}"
        return f"{launch.entry.name} {launch.lane} {kind}"

    def need_gib(self) -> float:
        """The memory that the server needs (GiB): the measured amount plus a margin, or a guess."""
        with _measured() as gib_of:
            measured = gib_of.get(self.key)
        if measured:
            return measured * MARGIN + SPARE_GIB
        guess = STAND_IN_GIB[self.kind]
        if self.launch.lane == "live":
            shared = FORK_SERVER_GIB if self.forked else 0.0
            guess = max(1.0, self.launch.entry.hardware.cpu_memory_gib - shared)
        return guess + max(0.0, self.cache_gib - 1)

    def ahead_gib(self) -> float:
        """The memory (GiB) of the fork server that has to be started as well; 0 if none has to."""
        is_running = any(template.socket == self._template for template in templates())
        return FORK_SERVER_GIB if self.forked and not is_running else 0.0

    @cached_property
    def _template(self) -> Path:
        return socket_of(self.launch, self.launch.environ())

    def learn(self, gib: float) -> None:
        """Stores the amount of memory that a server has used, if it is the largest so far."""
        with _measured() as gib_of:
            gib_of[self.key] = max(round(gib, 3), gib_of.get(self.key, 0.0))

    def measure(self, root: int) -> float:
        """Measures the memory (GiB) that the server below a process uses now, and stores the amount."""
        gib = taken_gib(root)
        self.learn(gib)
        return gib

    def settle(self, lease: Claim, root: int) -> None:
        """Notes in the lease of a ready server how much memory it uses now, and how much it may use."""
        taken = self.measure(root)
        lease.settle(gib=max(taken, self.need_gib()), used=taken)


def lease_for(launch: Launch, *, forked: bool = False) -> Claim | None:
    """Leases the hardware that a launch needs; None if Ray assigns the GPUs of its workers, on any nodes.

    Raises:
        NotEnoughHardware, WaitCannotEnd, LeaseTimeout: see `lease_gpus` and `lease_memory`.
        UsageError: the value of an environment variable is not a number.
    """
    if launch.environment.device == "cuda":
        if workers_by_ray(launch.args):
            return None
        shared = launch.lane == "scripted"
        gib = STAND_IN_GPU_GIB if shared else launch.entry.hardware.gpu_memory_gib
        visible = partial(visible_gpus, launch.environ())
        return lease_gpus(gpus_needed(launch.args), gib, shared=shared, visible=visible)
    start = Start(launch, forked)
    measure = partial(room, ready_gib=start.cache_gib, ahead=start.ahead_gib)
    return lease_memory(start.need_gib(), room=measure)


@contextmanager
def reserved_for(launch: Launch, count: int, *, forked: bool, wait_s: float | None = None) -> Iterator[None]:
    """Reserves the memory that `count` servers started from a launch need together; does nothing on CUDA.

    Enter it while no server of this process is in use. See `lease_memory` for `wait_s` and the errors.
    """
    if launch.environment.device == "cuda" or not count:
        yield
        return
    start = Start(launch, forked)
    gib, measure = count * start.need_gib(), partial(room, ahead=start.ahead_gib)
    reservation = lease_memory(gib, room=measure, wait_s=wait_s, kind="reservation")
    try:
        yield
    finally:
        reservation.release()


def room(ready_gib: float = 0.0, ahead: Callable[[], float] = lambda: 0.0) -> Room:
    """Measures the memory that CPU servers may use in total, and the part that is available now.

    It is what the kernel would give, minus the memory of the fork servers. VLLM_HARNESS_MEMORY_GIB limits
    servers and fork servers together.

    Args:
        ready_gib: memory (GiB) that must be free for vLLM to start: its KV cache, though allocated later.
        ahead: returns the memory (GiB) that a fork server will use that is not running yet.
    """
    coming = ahead()  # called first, so that a fork server that starts meanwhile is not counted twice
    total, available = _total_gib() - fork_servers_gib() - coming, node_memory().available / 2**30
    return Room(total, min(total, available - coming) if available >= ready_gib else 0.0)


def models_held() -> int:
    """How many models' templates a process keeps alive, using at most an eighth of the memory."""
    return max(1, min(MODELS_HELD, int(_total_gib() / 8 / TEMPLATE_GIB)))


def interpreters() -> int:
    """How many interpreters that import vLLM a command runs in parallel by default: one or two."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(2, cores, int(_total_gib() / 2 / INTERPRETER_GIB)))


def _total_gib() -> float:
    total = node_memory().total / 2**30
    return min(total, number(os.environ, BOUND_VARIABLE, total))


def capacity() -> tuple[int, int]:
    """How many forked stand-ins fit beside other processes: in total, and in addition to those running."""
    with all_claims() as claims:
        used, coming = (size / 2**30 for size in used_and_coming(claims))
    memory = room(ready_gib=1.0, ahead=lambda: 0.0 if templates() else FORK_SERVER_GIB)
    total = min(memory.total, memory.available + used)
    size = STAND_IN_GIB["forked"]
    return max(0, floor(total / size)), max(0, floor((total - used - coming) / size))


def gpus_needed(args: Sequence[str]) -> int:
    """The number of GPUs that a server started with these flags uses."""
    return prod(max(1, size) for size in flag_values(args, PARALLEL, int, 1))


def workers_by_ray(args: Sequence[str]) -> bool:
    """Whether Ray runs the workers of a server started with these flags."""
    return flag_values(args, [("--distributed-executor-backend",)], str, "") == ["ray"]


def taken_gib(root: int) -> float:
    """The unshared memory (USS, GiB) of a process and its descendants, without the fork server's share."""
    total = 0
    for pid in tree_pids(root):
        with suppress(psutil.Error):
            total += psutil.Process(pid).memory_full_info().uss
    return total / 2**30


def fork_servers_gib() -> float:
    """The memory (GiB) used by this user's fork servers, not counting the servers forked from them."""
    total, now = 0, int(time.monotonic() / MEASURED_FOR_S)
    servers = set[int]().union(*(tree_pids(record.supervisor) for record in running()))
    for template in templates():
        with suppress(psutil.Error):
            base = psutil.Process(template.pid)
            size = base.memory_info()
            total += size.rss - size.shared
            total += sum(_unshared(child, now) for child in base.children() if child.pid not in servers)
    return total / 2**30


@lru_cache
def _unshared(template: psutil.Process, _: int) -> int:
    """The unshared bytes of a template, cached for a few seconds, as the kernel needs long to count them."""
    return int(template.memory_full_info().uss)


def _measured() -> AbstractContextManager[dict[str, float]]:
    return locked_json(state_dir() / "needs.json", {})
