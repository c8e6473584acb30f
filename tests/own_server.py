"""Starts separate servers for a test module: like the target's server, but with other flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.session import needed_by, the_run
from vllm_harness._testing.skips import NOT_SERVED, skip

Running = dict[tuple[str, ...], RemoteServer]  # keyed by flags, variables and entry
OwnServer = Callable[..., RemoteServer]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks tests that use a separate server as needing two servers, unless they have the mark already."""
    fixtures = {"own_server", "mortal"} & set(getattr(item, "fixturenames", ()))
    if fixtures and not item.get_closest_marker("vllm_servers"):
        item.add_marker(pytest.mark.vllm_servers(2))


@pytest.fixture(scope="module")
def _running(request: pytest.FixtureRequest) -> Iterator[Running]:
    running: Running = {}
    yield running
    if running:
        with ThreadPoolExecutor(len(running)) as stopping:
            list(stopping.map(the_run(request.config).servers.stop, running.values()))


@pytest.fixture
def own_server(
    _vllm_target_server: VllmServer,
    _vllm_seed: int,
    _vllm_reservation: None,
    _running: Running,
    request: pytest.FixtureRequest,
) -> OwnServer:
    """Starts a server like the target's with other flags; tests in a module with the same flags share it."""
    assert isinstance(_vllm_target_server, RemoteServer)
    target, servers = _vllm_target_server, the_run(request.config).servers
    needed = needed_by(request.node) & set(API_PATHS)

    def start(
        args: Sequence[str] = (), env: Mapping[str, str] | None = None, entry: ModelEntry = target.entry
    ) -> RemoteServer:
        given = [f"{name}={value}" for name, value in (env or {}).items()]
        key = (target.model, target.environment.describe(), entry.model_dump_json(), *args, *given)
        server = _running.setdefault(
            key, RemoteServer(entry, lane="scripted", vllm=target.environment, args=args, env=env)
        )
        servers.use(server)
        if needed and (lacking := needed & server.endpoint.lacking()):
            skip(NOT_SERVED, f"this server does not serve {', '.join(sorted(lacking))}")
        return server

    return start


@pytest.fixture
def book(server: RemoteServer) -> Iterator[ScriptBook]:
    """A script book on the module's own `server`; the test must use all of its scripts."""
    book = ScriptBook(server.endpoint, server.entry)
    yield book
    book.verify()
    book.close()
