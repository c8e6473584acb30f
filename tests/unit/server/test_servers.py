"""Servers that have not been started, and the interface of launched and attached servers."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import Endpoint, attach
from vllm_harness._exchange.server import VllmServer
from vllm_harness._server.attached import AttachedServer
from vllm_harness._server.errors import ServerError
from vllm_harness._server.remote import RemoteServer


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for everything that a server would install, fetch and record."""
    for name in ("CACHE", "STATE"):
        monkeypatch.setenv(f"VLLM_HARNESS_{name}", str(tmp_path / "folders" / name))
    return tmp_path / "folders"


def test_the_constructor_makes_nothing(folder: Path) -> None:
    server = RemoteServer("qwen3", lane="scripted", vllm="0.32.0")
    assert (server.model, server.lane, server.entry.name) == ("qwen3", "scripted", "qwen3")
    assert not server.alive()
    with pytest.raises(ServerError, match="is not running"):
        _ = server.endpoint
    server.stop()
    assert not folder.exists()


@pytest.mark.parametrize(("model", "vllm"), [("nope", "0.32.0"), ("qwen3", "nope"), ("qwen3", "9.9.9")])
def test_wrong_names_are_refused(model: str, vllm: str, folder: Path) -> None:
    with pytest.raises(UsageError, match=r"nope|9\.9\.9"), RemoteServer(model, lane="scripted", vllm=vllm):
        pass
    assert not list(folder.rglob("*.log"))


class _Models(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Lists one model."""
        data = json.dumps({"data": [{"id": "qwen3"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """The address of a server that only lists one model."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Models) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield attach(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()


def test_both_kinds_have_the_interface(endpoint: Endpoint) -> None:
    entry = load_models().get("qwen3")
    remote: VllmServer = RemoteServer(entry, lane="scripted")
    attached: VllmServer = AttachedServer(endpoint, entry)
    names = {name for name in (*vars(VllmServer), *VllmServer.__annotations__) if not name.startswith("_")}
    assert {"endpoint", "entry", "model", "lane", "vllm_version", "client", "async_client"} <= names
    assert [name for name in names if not hasattr(attached, name)] == []
    assert [name for name in names if not hasattr(RemoteServer, name) and name not in vars(remote)] == []
