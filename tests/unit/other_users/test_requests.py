"""Requests over TCP that only a server's own user may send, sent by that user and by another user."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.tool_server.running import ToolServer
from tests.unit.other_users.nobody import Nobody, needs_root
from vllm_harness._server.launch import IN_SERVER

sys.path.insert(0, str(IN_SERVER))
import vllm_harness_asgi as asgi
import vllm_harness_uses as uses
from vllm_harness_middleware import ScriptMiddleware
from vllm_harness_recorder import RecordMiddleware

RULES = json.dumps({"rules": [{"name": "one", "takes": [[1]], "when": {}, "left": 1}]})


def status_of(port: int, method: str, path: str, body: str | None = None) -> int:
    """Returns the status of an answer; avoids name resolution, whose files another user may not read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.sock = socket.socket()
    connection.sock.connect(("127.0.0.1", port))
    connection.request(method, path, body)
    return connection.getresponse().status


async def vllm(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers every request with status 200."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def served(app: Any, other: Callable[[int], int]) -> Iterator[int]:
    """Serves an application; first runs `other` as another user, which must return 0."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    nobody = Nobody(lambda: other(port))  # forks before threads start; its connection waits for the server
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert nobody.exit_code() == 0
        yield port
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def remaining(port: int) -> list[str]:
    """Returns the remaining scripts of the book that answers requests without a book header."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/vllm-harness/books/default")
    names: list[str] = json.load(connection.getresponse())["left"]
    return names


@pytest.fixture(params=["netlink", "list"])
def look_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with each of the two ways to ask the kernel for the owner of a connection."""

    def unknown(client: object, server: object) -> None:
        raise OSError("a kernel without sock_diag")

    def unread(client: object, server: object) -> None:
        return None

    if request.param == "list":
        monkeypatch.setattr(asgi, "_owner_by_netlink", unknown)
    else:
        monkeypatch.setattr(asgi, "_owner_as_listed", unread)


@pytest.mark.usefixtures("look_up")
def test_a_closed_connection_has_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, address = listener.accept()
        scope = {"client": address, "server": listener.getsockname()}
        with accepted:
            assert asgi.of_this_user(scope)
            assert not asgi.of_this_user({**scope, "client": (address[0], 1)})
            assert not asgi.of_this_user({**scope, "client": ("here", address[1])})
            client.close()
            assert not asgi.of_this_user(scope)


@needs_root
@pytest.mark.usefixtures("look_up")
def test_scripts_of_another_user_are_refused() -> None:
    def ask_all(port: int) -> int:
        calls = [("POST", RULES), ("GET", None), ("DELETE", None)]
        statuses = {status_of(port, method, "/vllm-harness/books/default", body) for method, body in calls}
        return 0 if statuses == {403} else 1

    with served(ScriptMiddleware(vllm, in_vllm=False), ask_all) as port:
        assert remaining(port) == []
        assert status_of(port, "POST", "/vllm-harness/books/default", RULES) == 200
        assert remaining(port) == ["one"]


@needs_root
def test_another_user_cannot_read_a_recording() -> None:
    def ask_both(port: int) -> int:
        return (
            0
            if {status_of(port, method, "/vllm-harness/recording") for method in ("GET", "POST")} == {403}
            else 1
        )

    with served(RecordMiddleware(vllm), ask_both) as port:
        assert status_of(port, "GET", "/vllm-harness/recording") == 200


@needs_root
@pytest.mark.parametrize("path", ["/sse", "/messages/"])
def test_code_of_another_user_is_not_executed(path: str, tmp_path: Path) -> None:
    with ToolServer("python", tmp_path) as server:
        port = int(server.address.split(":")[1])
        assert Nobody(lambda: 0 if status_of(port, "GET", path) == 403 else 1).exit_code() == 0
        assert status_of(port, "GET", "/none") == 404


@pytest.mark.parametrize("use", ["../../../home", "1-1/..", "/tmp", "1", "", 7, None])
def test_the_name_of_a_use_is_not_a_path(use: object) -> None:
    assert not uses.is_use(use)
    assert uses.is_use("123-4")
