"""GPUs of several nodes for one shard, where no node has as many as it needs. Pure: no cluster.

vLLM takes them itself, by a placement group of Ray's that it makes (`--distributed-executor-backend ray`);
the shard runs on one of the nodes without GPUs of its own, and what vLLM will take is counted as taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_harness._machine.shard import Needs
from vllm_harness.extras.cluster.dispatch import NodeState


@dataclass(frozen=True)
class ShardSpread:
    """What a shard takes over several nodes.

    Attributes:
        host: the node that it runs on.
        takes: what is taken of each node, by its name.
    """

    host: str
    takes: Mapping[str, Needs]


def on_host(needs: Needs) -> Needs:
    """What a shard takes of the node that it runs on, beside GPUs."""
    return replace(needs, gpus=0, gpu_type="")


def spread(needs: Needs, nodes: Sequence[NodeState]) -> ShardSpread | None:
    """How to take GPUs of several nodes: of as few as can be, as vLLM's placement group packs them.

    Args:
        needs: of the shard.
        nodes: with what is free on them.

    Returns:
        The plan; None where they have too few together, or none has room for the shard itself.
    """
    of_kind = [node for node in nodes if node.free.gpus and needs.gpu_type in ("", node.gpu_type)]
    gpus: dict[str, int] = {}
    left = needs.gpus
    for node in sorted(of_kind, key=lambda node: (-node.free.gpus, node.name)):
        if left:
            gpus[node.name] = min(left, node.free.gpus)
            left -= gpus[node.name]
    hosts = sorted(
        (node for node in nodes if node.fits(on_host(needs))),
        key=lambda node: (node.name not in gpus, node.name),
    )
    if left or not hosts:
        return None
    host = hosts[0].name
    takes = {name: Needs(cpus=0, memory_gib=0, gpus=number) for name, number in gpus.items()}
    takes[host] = replace(on_host(needs), gpus=gpus.get(host, 0))
    return ShardSpread(host, takes)


def needs_several(needs: Needs, nodes: Sequence[NodeState]) -> bool:
    """Whether a shard fits on none of these nodes, with all that they have, but its GPUs on several."""
    return not any(node.fits(needs) for node in nodes) and spread(needs, nodes) is not None
