"""The reports of clients on several nodes add up: nothing counts twice, and lost conversations are listed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.extras.load.test_figures import load_turn
from vllm_harness.extras.load.client import ClientState
from vllm_harness.extras.load.conversations import Listener, LoadTurn
from vllm_harness.extras.load.nodes import ClientProgress, ClientReport, ClusterClients


def on_nodes(turns: list[LoadTurn]) -> ClusterClients:
    """Makes two clients that have started."""
    cluster: Any = SimpleNamespace()  # these tests never use the cluster
    clients = ClusterClients(cluster)
    clients.progress = [ClientProgress() for _ in range(2)]
    clients._listener = Listener(turns.append, lambda *_: None)
    return clients


def test_conversations_of_a_lost_client_are_held_again() -> None:
    turns: list[LoadTurn] = []
    clients = on_nodes(turns)
    clients.came(
        0,
        "a",
        ClientReport(ClientState(started=5, open={6, 8}, late_s=0.5), ended=[0, 2, 4], turns=[load_turn()]),
    )
    clients.came(1, "b", ClientReport(ClientState(started=1, open={1})))
    assert [state.started for state in clients.states] == [5, 1]
    clients.lost(0, "a")
    assert clients.lost_with == {6: "a", 8: "a"}
    assert clients.order(0).done == {0, 2, 4}
    clients.came(0, "b", ClientReport(ClientState(started=2, late_s=0.1, cpu_s=1.0), ended=[6]))
    states = [(state.started, state.late_s, state.cpu_s) for state in clients.states]
    assert states == [(5, 0.5, 1.0), (1, 0.0, 0.0)]
    assert clients.held_again == 1
    assert clients.progress[0].nodes == ["a", "b"]
    assert [turn.node for turn in turns] == ["a"]
