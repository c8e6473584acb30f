"""A shard that needs the GPUs of several nodes; Ray only counts the GPUs, and none is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.extras.cluster import workloads
from tests.extras.cluster.conftest import NODE, cluster_of
from tests.extras.cluster.workloads import Found, shard
from vllm_harness._machine.shard import Needs
from vllm_harness.extras.cluster.ray_cluster import ClusterError, RayCluster


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Two nodes that claim to have three GPUs each."""
    with cluster_of(2, **NODE, num_gpus=3) as cluster:
        yield cluster


def test_the_gpus_of_two_nodes_are_free_when_the_shard_starts(ray: Any, tmp_path: Path) -> None:
    """The shard makes a placement group of five GPUs, like vLLM, while other shards need one GPU each."""
    lines: list[str] = []
    needs = Needs(cpus=0.1, memory_gib=0.1, gpus=1)
    small = [shard(f"s{n}", partial(workloads.slow, tmp_path, 0.5), 2, needs) for n in range(12)]
    large = replace(
        shard("large", workloads.always_killed, 2, replace(needs, gpus=5)),
        over_nodes=partial(workloads.with_placement_group, tmp_path, 5),
    )
    found: Counter[str] = Counter()

    def count(result: Found) -> None:
        found[result[0]] += 1

    assert RayCluster(ray, lines.append, silence_timeout_s=60.0).run([*small, large], count) == []
    assert found == Counter(cell for each in [*small, large] for cell in each.cells)
    asked = [float(line) for line in (tmp_path / "asked").read_text().splitlines()]
    worked = [line.split()[1:] for line in (tmp_path / "intervals").read_text().splitlines()]
    assert len(asked) == 2
    for moment in asked:  # five of the six GPUs are free then
        assert sum(float(began) <= moment < float(ended) for began, ended in worked) <= 1


def test_more_gpus_than_all_nodes_have_are_refused(ray: Any) -> None:
    needs = Needs(cpus=0.1, memory_gib=0.1, gpus=7)
    large = replace(shard("large", workloads.quick, 1, needs), over_nodes=workloads.quick)
    (error,) = RayCluster(ray, lambda _: None).run([large], lambda _: None)
    assert isinstance(error, ClusterError)
    assert "7 GPUs" in error.message
