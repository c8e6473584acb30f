"""A simulated cluster: the makespan is near its lower bound, and no cell is lost or run twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.extras.cluster.simulation import lower_bound, shards_of, simulate
from vllm_harness._machine.shard import Needs
from vllm_harness.extras.cluster.dispatch import NodeState

DURATIONS: list[float] = json.loads(Path(__file__).with_name("durations.json").read_text())
"""Measured durations of cells, in seconds."""


def nodes(number: int, cpus: float = 4) -> list[NodeState]:
    """Makes nodes with four slots each."""
    return [NodeState(f"node {each}", Needs(cpus, 16)) for each in range(number)]


@pytest.mark.parametrize("seed", range(3))
def test_the_makespan_is_near_its_lower_bound(seed: int) -> None:
    shards = shards_of(5000, DURATIONS, seed)
    found = simulate(shards, nodes(20))
    assert found.makespan <= 1.1 * lower_bound(shards, 80)
    assert found.most_running <= 80


def test_one_long_shard_starts_first() -> None:
    (long, _), *others = shards_of(2000, DURATIONS, 5)
    shards = [(long, 3000.0), *others]
    shards[0] = (type(long)(**{**vars(long), "weight": 3000.0}), 3000.0)
    assert simulate(shards, nodes(20)).makespan <= 1.01 * lower_bound(shards, 80)


def test_shards_run_where_their_server_is_held() -> None:
    shards = shards_of(5000, DURATIONS, 1)
    found = simulate(shards, nodes(20))
    assert found.held > len(shards) / 2


def test_dying_nodes_lose_and_repeat_no_cell() -> None:
    shards = shards_of(2000, DURATIONS, 2)
    found = simulate(shards, nodes(10), deaths=[100.0, 150.0, 200.0])
    cells = Counter(found.cells)
    assert cells == Counter(cell for shard, _ in shards for cell in shard.cells)
