"""Every request has a connection of its own, and is sent once; TLS works with certificates of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import openai
import pytest
from requests import RequestException

from tests.closing_server import ClosingServer, certificate_in, closing_server
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import CA_VARIABLES, Endpoint, EndpointError, attach
from vllm_harness._exchange.sending import Outgoing, async_http_client, http_client, send, send_async

TIMES = 3


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A certificate that signs itself, one that it issued, and one for another name."""
    folder = tmp_path_factory.mktemp("certificates")
    own = certificate_in(folder)
    issued, elsewhere = certificate_in(folder, issuer=own), certificate_in(folder, "DNS:elsewhere.example")
    return {"own": own, "issued": issued, "elsewhere": elsewhere}


@pytest.fixture(params=["plain", "own", "issued"])
def server(request: pytest.FixtureRequest) -> Iterator[ClosingServer]:
    """A server without TLS, and servers with it whose own certificates the clients trust."""
    name = request.param
    certificate = None if name == "plain" else request.getfixturevalue("certificates")[name]
    with closing_server(certificate) as server:
        yield server


def plainly(endpoint: Endpoint, path: str) -> None:
    for _ in range(TIMES):
        assert endpoint.post(path, json={}).json()["data"]


def exchanged(endpoint: Endpoint, path: str) -> None:
    with http_client(endpoint) as client:
        for _ in range(TIMES):
            exchange = send(client, Outgoing(endpoint, path, {}))
            assert (exchange.status, exchange.broken) == (200, "")


def exchanged_async(endpoint: Endpoint, path: str) -> None:
    async def run() -> None:
        async with async_http_client(endpoint) as client:
            for _ in range(TIMES):
                exchange = await send_async(client, Outgoing(endpoint, path, {}))
                assert (exchange.status, exchange.broken) == (200, "")

    asyncio.run(run())


def by_sdk(endpoint: Endpoint, path: str) -> None:
    with endpoint.client(base_url=endpoint.url_for(path)) as client:
        for _ in range(TIMES):
            assert client.models.list().data[0].id == "m"


def by_async_sdk(endpoint: Endpoint, path: str) -> None:
    async def run() -> None:
        async with endpoint.async_client(base_url=endpoint.url_for(path)) as client:
            for _ in range(TIMES):
                assert (await client.models.list()).data[0].id == "m"

    asyncio.run(run())


SENDERS = [plainly, exchanged, exchanged_async, by_sdk, by_async_sdk]
FAILURES = (AssertionError, openai.APIConnectionError, RequestException, httpx2.TransportError)


@pytest.mark.parametrize("send_all", SENDERS)
def test_no_request_needs_a_kept_connection(
    send_all: Callable[[Endpoint, str], None], server: ClosingServer
) -> None:
    """A server that closes a connection upon its second request is no problem."""
    send_all(server.endpoint, "/close/2")
    assert server.requests == [1] * TIMES


@pytest.mark.parametrize("moment", ["close", "reset", "status", "body"])
@pytest.mark.parametrize("send_all", SENDERS)
def test_a_lost_request_is_not_sent_again(send_all: Callable[[Endpoint, str], None], moment: str) -> None:
    with closing_server() as server:
        with pytest.raises(FAILURES):
            send_all(server.endpoint, f"/{moment}/1")
        assert server.requests == [1]


@pytest.mark.parametrize("send_all", SENDERS)
def test_clients_refuse_other_certificates(
    send_all: Callable[[Endpoint, str], None], certificates: dict[str, Path]
) -> None:
    for served, trusted in [("own", None), ("own", "elsewhere"), ("elsewhere", "elsewhere")]:
        with closing_server(certificates[served]) as server:
            endpoint = replace(server.endpoint, ca=certificates[trusted] if trusted else None)
            with pytest.raises(FAILURES):
                send_all(endpoint, "/close/2")
            assert server.requests == []


def test_an_attached_server_with_a_ca_of_its_own(
    certificates: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables name the CA; without one, the server's certificate is refused."""
    for name in CA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with closing_server(certificates["issued"]) as server:
        url = server.endpoint.base_url
        with pytest.raises(EndpointError, match="certificate verify failed"):
            attach(url).models()
        for name in CA_VARIABLES:
            with monkeypatch.context() as context:
                context.setenv(name, str(certificates["own"]))
                assert attach(url).models() == ["m"]
                by_sdk(attach(url), "/v1")
                context.setenv(name, str(certificates["own"].with_suffix(".none")))
                assert attach("http://127.0.0.1:1").ca is None
                with pytest.raises(UsageError, match="certificates"):
                    attach(url)
