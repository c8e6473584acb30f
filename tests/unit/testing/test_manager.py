"""How many times the server manager restarts a server that dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_harness._server.errors import ServerDied
from vllm_harness._testing.manager import MOST_DEATHS, ServerManager
from vllm_harness._testing.results import TargetResult


class _MortalServer:
    """A fake server with the methods that the server manager uses."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self.starts = 0
        self.is_alive = False

    def alive(self) -> bool:
        return self.is_alive

    def start(self) -> None:
        self.is_alive = True
        self.starts += 1

    def stop(self) -> None:
        self.is_alive = False


@pytest.fixture
def server(tmp_path: Path) -> Any:
    log = tmp_path / "server.log"
    log.write_text("EngineCore encountered a fatal error\nRuntimeError: no such kernel\n")
    return _MortalServer(log)


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> ServerManager:
    return ServerManager(request.config, None, lambda _: TargetResult())


def test_a_server_that_dies_in_each_test_is_not_restarted(servers: ServerManager, server: Any) -> None:
    servers.use(server)
    for _ in range(MOST_DEATHS - 1):
        server.is_alive = False
        assert servers.use(server)
    server.is_alive = False
    for _ in range(3):
        with pytest.raises(ServerDied, match=r"no such kernel"):
            servers.use(server)
    assert server.starts == MOST_DEATHS


def test_a_server_that_dies_now_and_then_is_restarted(servers: ServerManager, server: Any) -> None:
    servers.use(server)
    for _ in range(2 * MOST_DEATHS):
        server.is_alive = False
        assert servers.use(server)
        assert not servers.use(server)
