"""Fixtures for the defect tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import pytest

from tests.defects.wire import QUIET_S, Wire
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._server.remote import RemoteServer

Talk = Callable[[RemoteServer], AbstractContextManager[tuple[ScriptBook, Wire]]]


@pytest.fixture
def wire(vllm_server: VllmServer, http: Endpoint) -> Wire:
    """Sends plain HTTP requests to the target's server."""
    return Wire(replace(http, request_s=QUIET_S), vllm_server.model)


@pytest.fixture
def talk() -> Talk:
    """Opens a script book on another server, whose scripts must all be used by the end of the block."""

    @contextmanager
    def open_book(server: RemoteServer) -> Iterator[tuple[ScriptBook, Wire]]:
        book = ScriptBook(server.endpoint, server.entry)
        yield book, Wire(replace(book.endpoint, request_s=QUIET_S), server.model)
        book.verify()

    return open_book
