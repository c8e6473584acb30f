"""Draws the (client, API) pairs that a short run tests; one process runs all cases of a pair."""

from __future__ import annotations

from collections.abc import Mapping

from tests.choice import Case, choose
from tests.clients.environments import Client


def drawn(clients: Mapping[str, Client], seed: int) -> frozenset[tuple[str, str]]:
    """Draws (client, API) pairs that include each client, and each case of each client, at least once.

    Args:
        clients: the clients by name.
        seed: the random seed.
    """
    visits = {
        f"{name}-{api}": ((name, api), Case(f"{name}-{api}", name, (api,), cases_of(client, api)))
        for name, client in clients.items()
        for api in client.cases
    }
    taken = choose([case for _, case in visits.values()], 1, seed)
    return frozenset(visits[name][0] for name in taken)


def cases_of(client: Client, api: str) -> frozenset[str]:
    """Returns the cases that a client runs over an API."""
    return frozenset(f"{client.name} {case}" for case in dict(client.cases)[api])
