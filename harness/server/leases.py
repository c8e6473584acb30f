"""What a server needs of the machine, leased to it alone until it has ended.

Whole GPUs on CUDA, a share of one NUMA node's memory on CPU. Leases are file locks in the state folder: two
runs never get the same as long as they share that folder (one user, or VLLM_HARNESS_STATE).
"""

from __future__ import annotations

import os
from argparse import ArgumentError, ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import prod

from harness.errors import UsageError
from harness.gpus import visible_gpus
from harness.server.gpu_leases import lease_gpus
from harness.server.launch import Launch
from harness.server.lease import Lease, Waiting, unheard
from harness.server.memory_leases import lease_memory

WAIT_VARIABLE = "VLLM_HARNESS_LEASE_WAIT_S"
WAIT_S = 3600.0
STAND_IN_GPU_GIB = 4.0
STAND_IN_CPU_GIB = 3.0
"""Started cold it takes 2.0 GiB, and more as its KV cache of 1 GiB fills."""
PARALLEL = (
    ("-tp", "--tensor-parallel-size"),
    ("-pp", "--pipeline-parallel-size"),
    ("-dp", "--data-parallel-size"),
)


def lease_for(launch: Launch, waiting: Waiting = unheard) -> Lease:
    """Leases what a launch needs, waiting for other leases up to VLLM_HARNESS_LEASE_WAIT_S (3600) seconds.

    Raises:
        NotEnoughHardware, LeaseTimeout: see `lease_gpus` and `lease_memory`.
        UsageError: a variable makes no sense.
    """
    environ = launch.environ()
    wait_s = _number(os.environ, WAIT_VARIABLE, WAIT_S)
    live, hardware = launch.lane == "live", launch.entry.hardware
    if launch.environment.device == "cuda":
        gib = hardware.gpu_memory_gib if live else STAND_IN_GPU_GIB
        visible = partial(visible_gpus, environ)
        return lease_gpus(gpus_needed(launch.args), gib, visible=visible, waiting=waiting, wait_s=wait_s)
    cache = _number(environ, "VLLM_CPU_KVCACHE_SPACE", 1.0)
    gib = (hardware.cpu_memory_gib if live else STAND_IN_CPU_GIB) + max(0.0, cache - 1)
    return lease_memory(gib, waiting=waiting, wait_s=wait_s)


def gpus_needed(args: Sequence[str]) -> int:
    """How many GPUs a server with these flags runs on; the last of two equal flags counts, as in vLLM."""
    parser = ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    for short, long in PARALLEL:
        parser.add_argument(short, long, type=int, default=1)
    with suppress(ArgumentError):  # vLLM refuses such flags itself
        known, _ = parser.parse_known_args([_dashed(arg) for arg in args])
        sizes: list[int] = list(vars(known).values())
        return prod(max(1, size) for size in sizes)
    return 1


def _dashed(arg: str) -> str:
    """vLLM takes `--tensor_parallel_size` for `--tensor-parallel-size`."""
    flag, equals, value = arg.partition("=")
    return flag.replace("_", "-") + equals + value if flag.startswith("--") else arg


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name) or str(default)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}, not a number") from None
