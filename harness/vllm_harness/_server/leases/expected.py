"""What the server of a shard of work needs, before its launch is planned."""

from __future__ import annotations

from vllm_harness._configuration.model_entries import Frontend, Lane, ModelEntry
from vllm_harness._environments.spec import Environment
from vllm_harness._machine.shard import Needs
from vllm_harness._server.launch import Launch
from vllm_harness._server.leases.allocation import TEMPLATE_GIB, Start, gpus_needed


def expected_needs(entry: ModelEntry, environment: Environment, lane: Lane, frontend: Frontend) -> Needs:
    """The memory and the GPUs that a forked server for an entry needs, before its launch is planned.

    The amount of memory was measured on this machine, or is a guess.
    """
    flags = entry.flags(lane, environment.device, frontend)
    launch = Launch(entry, lane, environment, "", flags.args, flags.env, frontend)
    gpus = gpus_needed(flags.args) if environment.device == "cuda" else 0
    return Needs(memory_gib=Start(launch, forked=True).need_gib() + TEMPLATE_GIB, gpus=gpus)
