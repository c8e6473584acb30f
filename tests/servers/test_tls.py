"""A server with a certificate of its own: every client reaches it, and trusts only that certificate."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apis import APIS, PATHS, endpoint_of, opened, question
from tests.chat_api import Chat
from tests.closing_server import certificate_in
from tests.messages_api import messages_on
from tests.responses_api import Responses
from vllm_harness._exchange.endpoint import EndpointError, attach
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._server.attached import AttachedServer
from vllm_harness._server.errors import StartupError
from vllm_harness._server.launch import Launch
from vllm_harness._server.records import running
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(400)]
KEY = "key-of-the-test"


def flags(certificate: Path) -> tuple[str, ...]:
    return f"--ssl-certfile={certificate}", "--ssl-keyfile", str(certificate.with_suffix(".key"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate_in(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(launch: Callable[..., Launch], certificate: Path) -> Iterator[RemoteServer]:
    """A server with TLS and a key."""
    with RemoteServer(launch(*flags(certificate), env={"VLLM_API_KEY": KEY})) as server:
        yield server


def test_the_clients_of_the_suites(
    server: RemoteServer, book: ScriptBook, request: pytest.FixtureRequest
) -> None:
    """Plain requests, streams, the SDKs, and the helpers for chat, Responses and Messages."""
    book.script("Rain.", times=3 + 2 * len(APIS))
    check = request.getfixturevalue
    assert server.endpoint.base_url.startswith("https://")
    assert server.metrics()
    with book.client() as client, messages_on(book.endpoint, server.model, check) as messages:
        assert endpoint_of(client) == book.endpoint
        chat, responses = (
            Chat(server, client, check, ScriptWriter(book)),
            Responses(client, server.model, check),
        )
        bodies = {api: {"model": server.model, **question(api)} for api in APIS}
        for api in APIS:
            assert book.endpoint.post(PATHS[api], json=bodies[api]).status_code == 200
            stream = {**bodies[api], "stream": True}
            with opened(book.endpoint, "POST", PATHS[api], json=stream) as answer:
                assert "Rain" in answer.read().decode()
        assert chat.post(PATHS["chat"], bodies["chat"]).status_code == 200
        assert responses.post(bodies["responses"]).status_code == 200
        assert messages.post(bodies["messages"]).status_code == 200


async def test_the_asynchronous_sdk(server: RemoteServer, book: ScriptBook) -> None:
    book.script("Rain.")
    async with book.async_client() as client:
        answer = await asyncio.wait_for(client.responses.create(model=server.model, input="Hi"), 60)
    assert answer.output_text.strip() == "Rain."


def vllm_harness(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vllm_harness.cli.start", *words]
    return subprocess.run(
        command, env={**os.environ, "THE_KEY": KEY, **environ}, capture_output=True, text=True, timeout=300
    )


def test_attached(
    server: RemoteServer, certificate: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The variable names the certificate; without it, the commands refuse the server."""
    url = server.endpoint.base_url
    monkeypatch.setenv("THE_KEY", KEY)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(EndpointError, match="certificate verify failed"):
        AttachedServer(attach(url, "THE_KEY"), server.entry)
    scenario: dict[str, Any] = {"scenario": 1, "turns": [{"name": "ask", "user": "Hi"}]}
    (tmp_path / "hi.json").write_text(json.dumps(scenario))
    words = ["load", str(tmp_path / "hi.json"), "--model", server.entry.name, "--server-url", url]
    words += ["--api-key-env", "THE_KEY", "--requests", "4", "--json"]
    server.script("Rain.", times=None)
    done = vllm_harness(*words, SSL_CERT_FILE=str(certificate))
    figures = json.loads(done.stdout)
    assert figures["total"]["requests"] == 4, done.stderr
    assert not figures["total"]["errors"]


def test_a_running_server_is_listed_with_its_scheme(server: RemoteServer) -> None:
    record = next(record for record in running() if record.server_id == server.server_id)
    assert record.endpoint.base_url == server.endpoint.base_url
    assert server.endpoint.url_for("v1") in vllm_harness("serve", "ps").stdout


def test_a_certificate_for_another_name(launch: Callable[..., Launch], tmp_path: Path) -> None:
    """The start ends with the reason as soon as the server answers."""
    certificate = certificate_in(tmp_path, "DNS:elsewhere.example")
    with (
        pytest.raises(StartupError, match=r"(?s)clients refuse.*127\.0\.0\.1.*subjectAltName"),
        RemoteServer(launch(*flags(certificate))),
    ):
        pass
