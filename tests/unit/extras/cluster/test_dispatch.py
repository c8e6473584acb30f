"""The choice of the next shard for a node: heavy shards first, on nodes with their server, if they fit."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.extras.cluster.simulation import nothing
from vllm_harness._machine.shard import Needs, Preparation, Shard
from vllm_harness.extras.cluster.dispatch import ATTEMPTS, Attempt, Dispatcher, NodeState, slots_of

SMALL = Needs()


def shard(
    name: str, weight: float = 1.0, server: str = "", needs: Needs = SMALL, made: str = ""
) -> Shard[None]:
    """Makes a shard of two cells."""
    preparation = Preparation(made, lambda _: None) if made else None
    return Shard(name, (f"{name}.1", f"{name}.2"), nothing, needs, preparation, server, weight)


def node(name: str = "a", cpus: float = 8, gib: float = 32, gpus: int = 0, kind: str = "") -> NodeState:
    """Makes a node with all its resources free."""
    return NodeState(name, Needs(cpus, gib, gpus), kind)


def assigned(dispatcher: Dispatcher, of: NodeState) -> list[str]:
    """Assigns shards to a node until no other fits; returns their names."""
    names = []
    while attempt := dispatcher.next_for(of):
        of.take(attempt.shard.needs)
        names.append(attempt.shard.name)
    return names


def test_heavy_shards_run_first_and_no_more_than_fit() -> None:
    dispatcher = Dispatcher([shard(str(weight), weight) for weight in range(1, 7)], slots=2)
    assert assigned(dispatcher, node(cpus=4)) == ["6", "5", "4", "3"]
    assert dispatcher.pending == 2


@pytest.mark.parametrize(
    ("needs", "fits"),
    [
        (Needs(1, 33), False),
        (Needs(1, 32), True),
        (Needs(9, 1), False),
        (Needs(1, 1, 1), True),
        (Needs(1, 1, 3), False),
        (Needs(1, 1, 1, "H100"), True),
        (Needs(1, 1, 1, "A100"), False),
    ],
)
def test_a_shard_runs_only_if_its_needs_are_free(needs: Needs, fits: bool) -> None:
    dispatcher = Dispatcher([shard("one", needs=needs)], slots=1)
    gpus = node(gpus=2, kind="H100")
    assert bool(dispatcher.take_unrunnable([gpus])) is not fits
    assert assigned(dispatcher, gpus) == (["one"] if fits else [])


def test_a_node_prefers_running_servers_and_then_finished_preparations() -> None:
    shards = [
        shard(f"{server}{n}", n, server, made=made)
        for n, (server, made) in enumerate(itertools.product(("x", "y"), ("0.31.0", "0.32.0")))
    ]
    shards += [shard(f"light{n}") for n in range(40)]
    of = node(cpus=1)
    of.holds("x")
    of.prepared.add("0.31.0")
    dispatcher = Dispatcher(shards, slots=1)
    order = []
    while (attempt := dispatcher.next_for(of)) and len(order) < 3:
        order.append(attempt.shard.name)
    assert order[:3] == ["x1", "x0", "y2"]


def test_a_very_long_shard_runs_before_one_whose_server_runs() -> None:
    of = node(cpus=1)
    of.holds("x")
    dispatcher = Dispatcher([shard("held", 1, "x"), shard("long", 100, "y")], slots=4)
    assert assigned(dispatcher, of) == ["long"]


def test_a_lost_shard_continues_on_another_node() -> None:
    dispatcher = Dispatcher([shard("one")], slots=1)
    first, second = node("first"), node("second")
    attempt = dispatcher.next_for(first)
    assert attempt is not None
    attempt.left, attempt.lost = attempt.left[1:], (("first", "its process was killed"),)
    dispatcher.give_back(attempt)
    assert dispatcher.pending == 1
    assert dispatcher.next_for(first) is None
    again = dispatcher.next_for(second)
    assert again is not None
    assert again.left == ("one.2",)
    assert dispatcher.pending == 0


def test_a_shard_lost_on_the_only_node_runs_there_again() -> None:
    dispatcher = Dispatcher([], slots=1)
    dispatcher.give_back(Attempt(shard("one"), ("one.1",), (("a", "killed"),)))
    assert dispatcher.next_for(node("a"), others=False) is not None


def test_a_node_gets_no_shard_whose_preparation_failed_there() -> None:
    dispatcher = Dispatcher([shard("new", made="0.33.0"), shard("old", made="0.32.0")], slots=1)
    of = node()
    of.refused.add("0.33.0")
    assert assigned(dispatcher, of) == ["old"]
    assert [attempt.shard.name for attempt in dispatcher.take_unrunnable([of])] == ["new"]
    assert dispatcher.pending == 0


def test_slots_count_the_shards_that_fit_on_each_node() -> None:
    shards = [shard("one", needs=Needs(1, 8))]
    assert slots_of([node(cpus=8, gib=32), node(cpus=2, gib=32), node(cpus=8, gib=1)], shards) == 6


def test_the_number_of_attempts_is_bounded() -> None:
    assert 1 < ATTEMPTS < 10
