"""Servers of a test module's own: like the target's, with other flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import pytest

from harness.pytest_plugin import Server
from harness.server.remote import RemoteServer

Running = tuple[ExitStack, dict[tuple[str, ...], RemoteServer]]
OwnServer = Callable[..., RemoteServer]


@pytest.fixture(scope="module")
def _running() -> Iterator[Running]:
    with ExitStack() as stack:
        yield stack, {}


@pytest.fixture
def own_server(vllm_server: Server, _running: Running) -> OwnServer:
    """Starts a server like the target's with other flags; tests of a module that want the same share it."""
    stack, running = _running
    assert isinstance(vllm_server, RemoteServer)
    target = vllm_server

    def start(args: Sequence[str] = (), env: Mapping[str, str] | None = None) -> RemoteServer:
        given = [f"{name}={value}" for name, value in (env or {}).items()]
        key = (target.model, target.environment.describe(), *args, *given)
        if key not in running or not running[key].alive():
            server = RemoteServer(target.entry, lane="scripted", vllm=target.environment, args=args, env=env)
            running[key] = stack.enter_context(server)
        return running[key]

    return start
