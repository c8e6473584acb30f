"""The async fixture, for pytest-asyncio in strict and in auto mode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from vllm_harness._exchange.server import VllmServer
    from vllm_harness._scripted.book import ScriptBook
    from vllm_harness._testing.wire import WireTap


@pytest_asyncio.fixture
async def async_openai_client(
    vllm_server: VllmServer, _vllm_book: ScriptBook | None, _vllm_tap: WireTap
) -> AsyncIterator[AsyncOpenAI]:
    """An async openai client for the server; it is answered from this test's scripts, and never retries."""
    async with _vllm_book.async_client() if _vllm_book else _vllm_tap.async_client(vllm_server) as openai:
        yield openai
