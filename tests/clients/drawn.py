"""Which third-party clients a short run visits over which API; all cases of a visit are one process."""

from __future__ import annotations

from collections.abc import Mapping

from tests.choice import Case, choose
from tests.clients.environments import Client


def drawn(clients: Mapping[str, Client], seed: int) -> frozenset[tuple[str, str]]:
    """One API of each client, and of each client's cases every one at least once; client and API.

    Args:
        clients: by name.
        seed: another seed takes other APIs.
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
