"""A load sends a request again, once, that a server lost with a kept connection, and counts it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.closing_server import ClosingServer, certificate_in, closing_server
from vllm_harness._exchange.endpoint import tls
from vllm_harness._exchange.sending import Outgoing
from vllm_harness.extras.load.client import ClientState
from vllm_harness.extras.load.kept import KeptConnections
from vllm_harness.extras.load.nodes import ClientProgress
from vllm_harness.extras.load.streams import StreamResult, send_and_read


@pytest.fixture(params=["plain", "tls"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClosingServer]:
    with closing_server(certificate_in(tmp_path) if request.param == "tls" else None) as server:
        yield server


def sent(server: ClosingServer, *paths: str, at_once: int = 1) -> tuple[list[StreamResult], int]:
    """Sends requests, as many at once as are wanted; returns the answers, and how many were sent again."""
    again: list[None] = []

    async def run() -> list[StreamResult]:
        connections = KeptConnections(lambda: again.append(None), limit=0, ssl=tls(server.endpoint.ca))
        async with aiohttp.ClientSession(connector=connections, middlewares=(connections.send,)) as session:
            results = list[StreamResult]()
            for path in paths:
                outgoing = Outgoing(server.endpoint, path, {"n": 1})
                sending = (send_and_read(session, outgoing, "chat") for _ in range(at_once))
                results += await asyncio.gather(*sending)
            assert not connections._carriers
            return results

    return asyncio.run(run()), len(again)


@pytest.mark.parametrize("moment", ["close", "reset"])
def test_a_request_lost_with_a_kept_connection_is_sent_again(moment: str, server: ClosingServer) -> None:
    results, again = sent(server, *[f"/{moment}/2"] * 4)
    assert [(result.exchange.status, result.exchange.broken) for result in results] == [(200, "")] * 4
    assert server.requests == [2, 2, 2, 1]
    assert again == 3


def test_it_is_sent_again_on_a_new_connection(server: ClosingServer) -> None:
    """Not on another kept connection, which the server may close as well."""
    results, again = sent(server, "/never/0", "/close/2", at_once=3)
    assert [result.exchange.status for result in results] == [200] * 6
    assert again == 3
    assert max(server.requests) == 2
    assert sum(server.requests) == 3 + 3 + 3


@pytest.mark.parametrize("moment", ["close", "reset", "status", "headers", "body"])
def test_a_request_on_a_new_connection_is_not_sent_again(moment: str, server: ClosingServer) -> None:
    (result,), again = sent(server, f"/{moment}/1")
    assert result.exchange.broken
    assert (server.requests, again) == ([1], 0)


@pytest.mark.parametrize("moment", ["status", "headers", "body"])
def test_a_request_that_got_a_byte_is_not_sent_again(moment: str, server: ClosingServer) -> None:
    results, again = sent(server, *[f"/{moment}/2"] * 2)
    assert [bool(result.exchange.broken) for result in results] == [False, True]
    assert (server.requests, again) == ([2], 0)


def test_it_is_sent_again_only_once(server: ClosingServer) -> None:
    results, again = sent(server, "/never/0", "/reset/12")
    assert [bool(result.exchange.broken) for result in results] == [False, True]
    assert (server.requests, again) == ([2, 1], 1)


def test_a_server_that_is_gone_is_not_tried_again() -> None:
    with closing_server() as server:
        pass
    (result,), again = sent(server, "/never/0")
    assert "ClientConnectorError" in result.exchange.broken
    assert again == 0


def test_the_counts_of_a_client_add_up() -> None:
    progress = ClientProgress(state=ClientState(sent_again=2), before=ClientState(sent_again=1))
    assert progress.whole.sent_again == 3
