"""Nodes are set up once, before anything runs on them; tested with real Ray tasks, but without vLLM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.extras.cluster import setup_plans
from tests.extras.cluster.conftest import NODE, cluster_of
from tests.extras.cluster.leftovers import wait_for
from tests.extras.cluster.workloads import Found, quick, shard, slow
from vllm_harness.extras.cluster.node_setup import SetupPlan
from vllm_harness.extras.cluster.places import Placement
from vllm_harness.extras.cluster.ray_cluster import ClusterError, RayCluster, connected

HERE = "PYTHON_OF_THIS_NODE"
PYTHON = {"py_executable": f'"${{{HERE}:-{sys.executable}}}"'}
"""An interpreter path with a variable that a worker's shell expands, as after a real setup."""


@pytest.fixture(scope="module")
def two() -> Iterator[Any]:
    """A head node that runs no cells, and two more nodes."""
    pytest.importorskip("ray", reason="Ray is not installed; scripts/cluster makes an environment with it")
    with cluster_of(1, **{**NODE, "num_cpus": 0}) as cluster:
        for _ in range(2):
            cluster.add_node(**NODE)
        yield cluster


@pytest.fixture
def module(two: Any) -> Iterator[Any]:
    """The module `ray`, connected to the cluster."""
    with connected(two.address, runtime_env={}) as ray:
        yield ray


def cluster(
    ray: Any, lines: list[str], placed: list[Placement], make: Any, runtime_env: dict[str, str] = PYTHON
) -> RayCluster:
    """An executor whose nodes are set up by the function `make`."""
    plan = SetupPlan(make, (setup_plans,), runtime_env)
    return RayCluster(ray, lines.append, placed.append, 60.0, plan)


def set_up(folder: Path) -> list[str]:
    """The nodes on which a setup was started, listed once for each start."""
    return (folder / "nodes").read_text().splitlines()


def test_each_node_that_runs_cells_is_set_up_once(
    module: Any, lines: list[str], placed: list[Placement], tmp_path: Path
) -> None:
    of_all = cluster(module, lines, placed, partial(setup_plans.recorded, tmp_path))
    of_all.await_setup()
    assert len(set_up(tmp_path)) == len(set(set_up(tmp_path))) == 2
    found: list[Found] = []
    assert of_all.run([shard("a", quick), shard("b", quick)], found.append) == []
    assert len(found) == 6
    assert len(set_up(tmp_path)) == 2
    assert sum(line.endswith(": setting it up") for line in lines) == 2


def test_a_setup_whose_worker_is_killed_starts_again(
    module: Any, lines: list[str], placed: list[Placement], tmp_path: Path
) -> None:
    of_all = cluster(module, lines, placed, partial(setup_plans.recorded, tmp_path, "killed"))
    of_all.await_setup()
    assert len(of_all.nodes()) == 2
    nodes = set_up(tmp_path)
    assert sorted(map(nodes.count, set(nodes))) == [1, 2]
    assert any("is set up once more: its process was killed" in line for line in lines)


def test_a_node_that_cannot_be_set_up_is_left_out(
    module: Any, lines: list[str], placed: list[Placement], tmp_path: Path
) -> None:
    of_all = cluster(module, lines, placed, partial(setup_plans.recorded, tmp_path, "disk"))
    of_all.await_setup()
    (node,) = of_all.nodes()
    found: list[Found] = []
    assert of_all.run([shard(name, quick) for name in "abcdef"], found.append) == []
    assert len(found) == 18
    assert {each.node for each in placed} == {of_all.name_of(node.name)}
    assert any("is left out: the disk is full" in line for line in lines)


def test_a_cluster_without_usable_nodes_is_an_error(
    module: Any, lines: list[str], placed: list[Placement]
) -> None:
    def make() -> Iterator[tuple[bool, str]]:
        yield True, "part-0003 is damaged"

    with pytest.raises(ClusterError, match=r"could be set up: .*: part-0003 is damaged; .*: part-0003"):
        cluster(module, lines, placed, make).await_setup()


def test_a_node_that_joins_later_is_set_up_first(
    two: Any, module: Any, lines: list[str], placed: list[Placement], tmp_path: Path
) -> None:
    of_all = cluster(module, lines, placed, partial(setup_plans.recorded, tmp_path))
    of_all.await_setup()
    before = {node.name for node in of_all.nodes()}
    added = two.add_node(**NODE)
    try:
        shards = [shard(str(number), partial(slow, tmp_path, 1.0)) for number in range(18)]
        found: list[Found] = []
        assert of_all.run(shards, found.append) == []
        (new,) = {node.name for node in of_all.nodes()} - before
        assert set_up(tmp_path).count(new) == 1
        name = of_all.name_of(new)
        assert name in {each.node for each in placed}
        assert lines.index(f"{name}: setting it up") < lines.index(f"{name} has joined")
    finally:
        two.remove_node(added)
        wait_for(lambda: sum(node["Alive"] for node in module.nodes()) == 3)
