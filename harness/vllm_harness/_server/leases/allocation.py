"""What a server needs of this machine, leased to it alone until it has ended.

On CUDA whole GPUs, of which stand-ins share one; on CPU the memory that such a server was measured to take, a
guess until then. Leases exclude each other between runs that share the state folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from math import floor, prod

import psutil

from vllm_harness._configuration.model_entries import Frontend, Lane, ModelEntry
from vllm_harness._environments.spec import Environment
from vllm_harness._files.paths import state_dir
from vllm_harness._files.variables import number
from vllm_harness._machine.gpus import visible_gpus
from vllm_harness._machine.node_memory import node_memory
from vllm_harness._machine.shard import Needs
from vllm_harness._scripted.standin import STAND_IN_GPU_GIB
from vllm_harness._server.flags import flag_values
from vllm_harness._server.fork_server import FIRST, MODELS_HELD, templates
from vllm_harness._server.launch import Launch
from vllm_harness._server.leases.claims import Claim, all_claims, kept_json
from vllm_harness._server.leases.gpus import lease_gpus
from vllm_harness._server.leases.memory import Room, lease_memory, used_and_coming
from vllm_harness._server.process_tree import tree_pids
from vllm_harness._server.records import running

BOUND_VARIABLE = "VLLM_HARNESS_MEMORY_GIB"
STAND_IN_GIB = {"forked": 0.7, "cold": 2.2}
"""Guess for a stand-in that was never measured; gpt-oss and Qwen 3 take 0.3 and 1.9 GiB on vLLM 0.32.0."""
FORK_SERVER_GIB = 1.1
"""Guess for a fork server with a model's tokenizer, before it can be measured."""
TEMPLATE_GIB = 0.3  # of the fork server, with one model's tokenizer
INTERPRETER_GIB = 1.0  # with vLLM's parsers, torch and tokenizers imported
MARGIN, SPARE_GIB = 1.25, 0.1
"""What a server may take beyond its measured memory."""
MEASURED_FOR_S = 20.0
PARALLEL = (
    ("-tp", "--tensor-parallel-size"),
    ("-pp", "--pipeline-parallel-size"),
    ("-dp", "--data-parallel-size"),
)


@dataclass(frozen=True)
class Start:
    """A launch on CPU and its kind of start.

    Attributes:
        forked: from the fork server, which shares most of its memory with it.
    """

    launch: Launch
    forked: bool

    @property
    def cache_gib(self) -> float:
        """Size of its KV cache: taken as the cache fills, but vLLM requires it to be free at the start."""
        return number(self.launch.environ(), "VLLM_CPU_KVCACHE_SPACE", 1.0)

    @property
    def kind(self) -> str:
        """Whether it is `forked` or `cold`."""
        return "forked" if self.forked else "cold"

    @property
    def key(self) -> str:
        """The key of a measurement: servers of the same key take the same memory.

        One that runs a file first, as for a mutant, serves few tests, and its KV cache fills less.
        """
        launch, first = self.launch, " first" if os.environ.get(FIRST) else ""
        kind = f"{self.kind} {launch.environment.vllm_version} {launch.frontend} {self.cache_gib:g}{first}"
        return f"{launch.entry.name} {launch.lane} {kind}"

    def need_gib(self) -> float:
        """The memory it needs: as measured, with a margin, or a guess."""
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
        """What its start takes in addition: the memory of a fork server, where none runs."""
        described = self.launch.environment.describe()
        runs = any(template.environment == described for template in templates())
        return FORK_SERVER_GIB if self.forked and not runs else 0.0

    def learn(self, gib: float) -> None:
        """Keeps the memory that a server has taken, if it is the largest so far."""
        with _measured() as gib_of:
            gib_of[self.key] = max(round(gib, 3), gib_of.get(self.key, 0.0))


def lease_for(launch: Launch, *, forked: bool = False) -> Claim | None:
    """Leases what a launch needs; None where Ray gives its workers their GPUs, on whatever nodes.

    Args:
        forked: whether it is to be started from the fork server.

    Raises:
        NotEnoughHardware, WaitCannotEnd, LeaseTimeout: see `lease_gpus` and `lease_memory`.
        UsageError: a variable is not a number.
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
    """Reserves what servers of a launch need together, on CPU; on CUDA each server leases its own GPUs.

    To be entered while no server of this process is in use. Raises as `lease_for`.

    Args:
        wait_s: seconds to wait for others in place of VLLM_HARNESS_LEASE_WAIT_S.
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


def expected_needs(entry: ModelEntry, environment: Environment, lane: Lane, frontend: Frontend) -> Needs:
    """The memory and the GPUs that a forked server of an entry takes, before its launch is planned.

    The memory is as measured on this machine, or a guess until then; on CUDA only that of the GPUs is leased.
    """
    flags = entry.flags(lane, environment.device, frontend)
    launch = Launch(entry, lane, environment, "", flags.args, flags.env, frontend)
    gpus = gpus_needed(flags.args) if environment.device == "cuda" else 0
    return Needs(memory_gib=Start(launch, forked=True).need_gib() + TEMPLATE_GIB, gpus=gpus)


def room(ready_gib: float = 0.0, ahead: Callable[[], float] = lambda: 0.0) -> Room:
    """The memory that CPU servers may have in total, and the part that is available now.

    It is the memory that the kernel would give, less that of the fork servers; VLLM_HARNESS_MEMORY_GIB bounds
    servers and fork servers together.

    Args:
        ready_gib: memory that must be free for vLLM to start: its KV cache, though it is taken later.
        ahead: what a fork server will take that does not run yet, in GiB.
    """
    coming = ahead()  # before those that run are measured, so that one that starts counts once at most
    total, available = _total_gib() - fork_servers_gib() - coming, node_memory().available / 2**30
    return Room(total, min(total, available - coming) if available >= ready_gib else 0.0)


def models_held() -> int:
    """How many models' templates of the fork server a process keeps: at most an eighth of the memory."""
    return max(1, min(MODELS_HELD, int(_total_gib() / 8 / TEMPLATE_GIB)))


def interpreters() -> int:
    """How many interpreters with vLLM a command runs side by side by default: two at most."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(2, cores, int(_total_gib() / 2 / INTERPRETER_GIB)))


def _total_gib() -> float:
    total = node_memory().total / 2**30
    return min(total, number(os.environ, BOUND_VARIABLE, total))


def capacity() -> tuple[int, int]:
    """How many forked stand-ins fit beside all other processes, as leased: in total, and in addition now."""
    with all_claims() as claims:
        used, coming = (size / 2**30 for size in used_and_coming(claims))
    memory = room(ready_gib=1.0, ahead=lambda: 0.0 if templates() else FORK_SERVER_GIB)
    total = min(memory.total, memory.available + used)
    each = STAND_IN_GIB["forked"]
    return max(0, floor(total / each)), max(0, floor((total - used - coming) / each))


def gpus_needed(args: Sequence[str]) -> int:
    """How many GPUs a server with these flags runs on."""
    return prod(max(1, size) for size in flag_values(args, PARALLEL, int, 1))


def workers_by_ray(args: Sequence[str]) -> bool:
    """Whether a server with these flags has Ray run its workers."""
    return flag_values(args, [("--distributed-executor-backend",)], str, "") == ["ray"]


def taken_gib(root: int) -> float:
    """The memory of a server without what it shares with its fork server: its unshared pages (USS)."""
    total = 0
    for pid in tree_pids(root):
        with suppress(psutil.Error):
            total += psutil.Process(pid).memory_full_info().uss
    return total / 2**30


def fork_servers_gib() -> float:
    """The memory of this user's fork servers, without the servers forked from them."""
    total, now = 0, int(time.monotonic() / MEASURED_FOR_S)
    servers = set[int]().union(*(tree_pids(record.supervisor) for record in running()))
    for template in templates():
        with suppress(psutil.Error):
            base = psutil.Process(template.pid)
            size = base.memory_info()
            total += size.rss - size.shared
            total += sum(_unshared(each, now) for each in base.children() if each.pid not in servers)
    return total / 2**30


@lru_cache
def _unshared(template: psutil.Process, _: int) -> int:
    """Unshared bytes of a template, kept for some seconds: the kernel visits each page to count them."""
    return int(template.memory_full_info().uss)


def _measured() -> AbstractContextManager[dict[str, float]]:
    return kept_json(state_dir() / "needs.json", {})
