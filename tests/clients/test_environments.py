"""A missing Node or package index raises a dedicated error, so that skips hide no other failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.environments import Client, NotToBeHadError, clients
from vllm_harness._environments.installer import InstallError


@pytest.fixture
def _no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VLLM_HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


@pytest.mark.usefixtures("_no_index")
def test_no_index() -> None:
    client = clients()["openai"]
    with pytest.raises(NotToBeHadError, match="no package index can be reached"):
        client.make()
    assert not client.folder.exists()


@pytest.mark.usefixtures("_no_index")
def test_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NotToBeHadError, match="node is not installed"):
        clients()["openai-node"].make()


@pytest.mark.usefixtures("_no_index")
def test_an_invalid_requirement_is_not_skipped() -> None:
    client = Client(name="wrong", kind="python", requirements=("not a name",), program="", cases={})
    with pytest.raises(InstallError):
        client.make()


def test_requirements_are_pinned() -> None:
    for client in clients().values():
        for requirement in client.requirements:
            assert ("==" if client.kind == "python" else "@") in requirement, client.name
