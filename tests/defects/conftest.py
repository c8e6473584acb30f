"""Fixtures of the defect tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import httpx
import pytest
from openai import OpenAI

from tests.defects.wire import QUIET_S, Wire
from vllm_harness.exchange.endpoint import tls
from vllm_harness.exchange.server import VllmServer
from vllm_harness.scripted.book import ScriptBook
from vllm_harness.scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness.server.remote import RemoteServer

Talk = Callable[[RemoteServer], AbstractContextManager[tuple[ScriptBook, Wire]]]


@pytest.fixture
def wire(vllm_server: VllmServer, openai_client: OpenAI) -> Iterator[Wire]:
    """The API of the target's server."""
    headers = {name: value for name, value in openai_client.default_headers.items() if isinstance(value, str)}
    with httpx.Client(
        base_url=str(openai_client.base_url), headers=headers, timeout=QUIET_S, verify=tls()
    ) as http:
        yield Wire(http, vllm_server.model)


@pytest.fixture
def talk() -> Talk:
    """Opens a book on another server, and its API; what was scripted must have been said at the end."""

    @contextmanager
    def open_book(server: RemoteServer) -> Iterator[tuple[ScriptBook, Wire]]:
        book = ScriptBook(server.endpoint, server.entry)
        headers = {BOOK_HEADER: book.name}
        with httpx.Client(
            base_url=server.url_for("/v1"), headers=headers, timeout=QUIET_S, verify=tls()
        ) as http:
            yield book, Wire(http, server.model)
            book.verify()

    return open_book
