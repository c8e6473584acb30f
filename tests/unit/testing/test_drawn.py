"""The third-party clients in a short run: each client with all its cases, and over many seeds each API."""

from __future__ import annotations

from tests.clients.drawn import cases_of, drawn
from tests.clients.environments import clients

CLIENTS = clients()
SEEDS = range(100)


def test_every_case_of_every_client_is_drawn() -> None:
    expected = {case for client in CLIENTS.values() for api in client.cases for case in cases_of(client, api)}
    for seed in SEEDS:
        assert {
            case for name, api in drawn(CLIENTS, seed) for case in cases_of(CLIENTS[name], api)
        } == expected


def test_in_the_end_every_client_runs_over_every_api() -> None:
    every = {(name, api) for name, client in CLIENTS.items() for api in client.cases}
    assert {visit for seed in SEEDS for visit in drawn(CLIENTS, seed)} == every


def test_a_short_run_is_shorter_than_the_whole() -> None:
    every = sum(len(client.cases) for client in CLIENTS.values())
    assert max(len(drawn(CLIENTS, seed)) for seed in SEEDS) < every
