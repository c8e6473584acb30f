"""Draws the third-party clients and APIs that a short run visits; one process runs all cases of a visit."""

from __future__ import annotations

from collections.abc import Mapping

from tests.choice import Case, choose
from tests.clients.environments import Client


def drawn(clients: Mapping[str, Client], seed: int) -> frozenset[tuple[str, str]]:
    """Draws client and API pairs: an API of each client, and each case of each client at least once.

    Args:
        clients: the clients by name.
        seed: the seed of the draw.
    """
    visits = {
        f"{name}-{api}": ((name, api), Case(f"{name}-{api}", name, (api,), cases_of(client, api)))
        for name, client in clients.items()
        for api in client.cases
    }
    taken = choose([case for _, case in visits.values()], 1, seed)
    return frozenset(visits[name][0] for name in taken)


def cases_of(client: Client, api: str) -> frozenset[str]:
    """The cases of a client over an API."""
    return frozenset(f"{client.name} {case}" for case in dict(client.cases)[api])
