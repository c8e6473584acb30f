"""Plans GPUs on several nodes for a shard that needs more than any node has, without using a cluster.

vLLM itself takes the GPUs, through a Ray placement group (`--distributed-executor-backend ray`). The shard
runs on one of the nodes and takes no GPU there; the plan counts the GPUs that vLLM will take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_harness._machine.shard import Needs
from vllm_harness.extras.cluster.dispatch import NodeState


@dataclass(frozen=True)
class ShardSpread:
    """The resources that a shard takes on several nodes.

    Attributes:
        host: the node on which the shard runs.
        takes: node -> the resources that are taken there.
    """

    host: str
    takes: Mapping[str, Needs]


def on_host(needs: Needs) -> Needs:
    """The resources that a shard takes on the node on which it runs, without GPUs."""
    return replace(needs, gpus=0, gpu_type="")


def spread(needs: Needs, nodes: Sequence[NodeState]) -> ShardSpread | None:
    """Plans GPUs on as few nodes as possible, like vLLM's placement group, which packs them.

    Args:
        needs: the needs of the shard.
        nodes: the nodes, with their free resources.

    Returns:
        The plan; None if the nodes together have too few GPUs, or no node can host the shard itself.
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
    """Whether a shard fits on no single node, but on several, if all their resources are free."""
    return not any(node.fits(needs) for node in nodes) and spread(needs, nodes) is not None
