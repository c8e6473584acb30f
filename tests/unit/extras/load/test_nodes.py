"""What clients on nodes tell, added up: nothing twice, and what was lost with a node is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.extras.load.test_figures import taken
from vllm_harness.extras.load.client import ClientState, Listener
from vllm_harness.extras.load.conversations import LoadTurn
from vllm_harness.extras.load.nodes import ClientProgress, ClientReport, ClusterClients
from vllm_harness.extras.load.plan import LoadShare


def on_nodes(turns: list[LoadTurn]) -> ClusterClients:
    """Two clients that have been told to begin."""
    cluster: Any = SimpleNamespace()  # it is asked for nothing
    clients = ClusterClients(cluster)
    clients.told = [ClientProgress(LoadShare(number, 2)) for number in range(2)]
    clients._listener = Listener(turns.append, lambda *_: None)
    return clients


def test_what_a_lost_client_had_open_is_held_again() -> None:
    turns: list[LoadTurn] = []
    clients = on_nodes(turns)
    clients.came(
        0, "a", ClientReport(ClientState(begun=5, open={6, 8}, late_s=0.5), ended=[0, 2, 4], turns=[taken()])
    )
    clients.came(1, "b", ClientReport(ClientState(begun=1, open={1})))
    assert [state.begun for state in clients.states] == [5, 1]
    clients.lost(0, "a")
    assert clients.lost_with == {6: "a", 8: "a"}
    assert clients.order(0).done == {0, 2, 4}
    clients.came(0, "b", ClientReport(ClientState(begun=2, late_s=0.1, cpu_s=1.0), ended=[6]))
    told = [(state.begun, state.late_s, state.cpu_s) for state in clients.states]
    assert told == [(5, 0.5, 1.0), (1, 0.0, 0.0)]
    assert clients.held_again == 1
    assert clients.told[0].nodes == ["a", "b"]
    assert [each.node for each in turns] == ["a"]
