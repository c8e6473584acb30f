"""Which servers a run keeps, and which it starts no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_harness._server.errors import ServerDied
from vllm_harness._testing.manager import MOST_DEATHS, ServerManager
from vllm_harness._testing.results import TargetResult


class _Mortal:
    """What a manager asks of a server, without one."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self.starts = 0
        self.lives = False

    def alive(self) -> bool:
        return self.lives

    def start(self) -> None:
        self.lives = True
        self.starts += 1

    def stop(self) -> None:
        self.lives = False


@pytest.fixture
def server(tmp_path: Path) -> Any:
    log = tmp_path / "server.log"
    log.write_text("EngineCore encountered a fatal error\nRuntimeError: no such kernel\n")
    return _Mortal(log)


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> ServerManager:
    return ServerManager(request.config, None, lambda _: TargetResult())


def test_server_that_dies_in_each_test_is_given_up(servers: ServerManager, server: Any) -> None:
    servers.use(server)
    for _ in range(MOST_DEATHS - 1):
        server.lives = False
        assert servers.use(server)
    server.lives = False
    for _ in range(3):
        with pytest.raises(ServerDied, match=r"no such kernel"):
            servers.use(server)
    assert server.starts == MOST_DEATHS


def test_server_that_dies_now_and_then_is_started_again(servers: ServerManager, server: Any) -> None:
    servers.use(server)
    for _ in range(2 * MOST_DEATHS):
        server.lives = False
        assert servers.use(server)
        assert not servers.use(server)
