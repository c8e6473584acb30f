"""The third-party clients that a short run visits: each client, each of its cases, in the end each API."""

from __future__ import annotations

from tests.clients.drawn import cases_of, drawn
from tests.clients.environments import clients

CLIENTS = clients()
SEEDS = range(100)


def test_every_case_of_every_client_is_drawn() -> None:
    wanted = {case for client in CLIENTS.values() for api in client.cases for case in cases_of(client, api)}
    for seed in SEEDS:
        assert {case for name, api in drawn(CLIENTS, seed) for case in cases_of(CLIENTS[name], api)} == wanted


def test_over_the_seeds_every_client_is_visited_over_every_api() -> None:
    every = {(name, api) for name, client in CLIENTS.items() for api in client.cases}
    assert {visit for seed in SEEDS for visit in drawn(CLIENTS, seed)} == every


def test_a_short_run_visits_fewer_than_all() -> None:
    every = sum(len(client.cases) for client in CLIENTS.values())
    assert max(len(drawn(CLIENTS, seed)) for seed in SEEDS) < every
