"""The async fixture where pytest-asyncio runs it, in its strict and its auto mode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from vllm_harness.scripted.book import ScriptBook
    from vllm_harness.testing.session import Server
    from vllm_harness.testing.wire import WireTap


@pytest_asyncio.fixture
async def async_openai_client(
    vllm_server: Server, _vllm_book: ScriptBook | None, _vllm_tap: WireTap
) -> AsyncIterator[AsyncOpenAI]:
    """An async openai client for the server, answered from this test's scripts."""
    from vllm_harness.testing.resources import async_client

    async with async_client(vllm_server, _vllm_book, _vllm_tap) as openai:
        yield openai
