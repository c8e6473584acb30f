"""Plans that combine the GPUs of several nodes for one shard."""

from __future__ import annotations

import pytest

from vllm_harness._machine.shard import Needs
from vllm_harness.extras.cluster.dispatch import NodeState
from vllm_harness.extras.cluster.spread import needs_several, spread


def node(name: str, gpus: int, kind: str = "H100", cpus: float = 8, memory_gib: float = 64) -> NodeState:
    return NodeState(name, Needs(cpus, memory_gib, gpus), kind if gpus else "")


def planned(needs: Needs, *nodes: NodeState) -> tuple[str, dict[str, int]] | None:
    """Plans a shard; returns the host node, and the number of GPUs taken from each node."""
    over = spread(needs, nodes)
    return over and (over.host, {name: each.gpus for name, each in over.takes.items()})


TWO_NODES = node("a", 8), node("b", 8)


@pytest.mark.parametrize(
    ("gpus", "nodes", "expected"),
    [
        (16, TWO_NODES, ("a", {"a": 8, "b": 8})),
        (12, TWO_NODES, ("a", {"a": 8, "b": 4})),
        (17, TWO_NODES, None),
        (12, (node("a", 4), node("b", 8), node("c", 8)), ("b", {"b": 8, "c": 4})),
        (12, (node("a", 8, cpus=0), node("b", 8)), ("b", {"a": 8, "b": 4})),
        (
            16,
            (node("a", 8, cpus=0), node("b", 8, memory_gib=1), node("c", 0)),
            ("c", {"a": 8, "b": 8, "c": 0}),
        ),
        (16, (node("a", 8, cpus=0), node("b", 8, memory_gib=1)), None),
    ],
)
def test_gpus_are_taken_from_as_few_nodes_as_possible(
    gpus: int, nodes: tuple[NodeState, ...], expected: tuple[str, dict[str, int]] | None
) -> None:
    assert planned(Needs(1, 4, gpus), *nodes) == expected


def test_gpus_of_another_type_do_not_count() -> None:
    mixed = (node("a", 8), node("b", 8, "A100"), node("c", 8))
    assert planned(Needs(1, 4, 16, "H100"), *mixed) == ("a", {"a": 8, "c": 8})
    assert planned(Needs(1, 4, 16, "A100"), *mixed) is None


def test_cpus_and_memory_are_taken_from_the_host_alone() -> None:
    over = spread(Needs(2, 4, 16), TWO_NODES)
    assert over is not None
    assert over.takes == {"a": Needs(2, 4, 8), "b": Needs(0, 0, 8)}


@pytest.mark.parametrize(("gpus", "several"), [(8, False), (9, True), (16, True), (17, False)])
def test_several_nodes_are_needed_only_if_one_has_too_few(gpus: int, several: bool) -> None:
    assert needs_several(Needs(1, 4, gpus), TWO_NODES) is several
